#!/usr/bin/env bash
# Build the wheel into a folder, with the pinned tools and no others: what the release does, and `make release-dry`.
# wheel.sh FOLDER [PYTHON]
set -euo pipefail
out=${1:?folder} python=${2:-python3}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check --require-hashes --target "$tools" -r requirements/build.txt
PYTHONPATH=$tools "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --wheel-dir "$out" .
