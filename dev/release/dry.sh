#!/usr/bin/env bash
# A release as far as it goes on one machine: `make release-dry`. The wheel is built and installed into an empty
# environment, the charts are packaged as for a registry that does not exist, rendered and looked at; what was left out is
# said. DIGEST and SIGN need a registry and an identity: the workflow does them. dry.sh FOLDER BIN
set -euo pipefail
out=${1:?folder} bin=$(realpath "${2:?folder of programs}")
registry=registry.example.invalid/team version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
export PATH=$HOME/.cache/rlscaler/bin:$PATH
rm -rf "$out" && mkdir -p "$out" && out=$(realpath "$out")
say() { printf '%s %s\n' "$1" "$2"; }

dev/release/wheel.sh "$out" "$bin/python"
wheel=$(echo "$out"/rlscaler-"$version"-*.whl)
say "ok  " "wheel: $wheel, $(stat -c %s "$wheel") bytes"
"$bin/uv" venv --quiet "$out/venv"
VIRTUAL_ENV=$out/venv "$bin/uv" pip install --quiet --require-hashes -r requirements/operator.txt
VIRTUAL_ENV=$out/venv "$bin/uv" pip install --quiet --no-deps "$wheel"
installed=$(cd / && env -i HOME=/nonexistent PATH=/usr/bin:/bin "$out/venv/bin/rlscaler" --version)
[ "$installed" = "rlscaler, version $version" ] || { say FAIL "the installed command says: $installed"; exit 1; }
for command in "operator run" init preflight status explain; do
  (cd / && env -i HOME=/nonexistent PATH=/usr/bin:/bin "$out/venv/bin/rlscaler" $command --help >/dev/null)
done
say "ok  " "installed into an empty environment: $installed, its commands load"

digest=sha256:$(printf operator | sha256sum | cut -c1-64)
dev/release/charts.sh "$out" "$version" "$registry" "$digest" https://wiki.example.invalid/runbooks >/dev/null
for runs in "rlscaler $registry/rlscaler@$digest" "rlscaler-demo $registry/rlscaler-service:$version"; do
  read -r name image <<<"$runs"
  chart=$out/$name-$version.tgz
  helm lint --quiet "$chart"
  helm template here "$chart" --namespace there >"$chart.yaml"
  grep -q "image: \"\?$image" "$chart.yaml" || { say FAIL "$chart: does not run $image"; exit 1; }
  if grep -n "localhost/rlscaler" "$chart.yaml"; then say FAIL "$chart: still names localhost"; exit 1; fi
  say "ok  " "chart: $chart, runs $image"
done

(cd "$out" && sha256sum ./*.whl ./*.tgz >SHA256SUMS && sha256sum --quiet --check SHA256SUMS)
say "ok  " "$out/SHA256SUMS"
archive=$(ls "$HOME"/.cache/rlscaler/images/rlscaler-*.tar 2>/dev/null | head -1 || true)
if [ -n "$archive" ]; then
  say "ok  " "image: $archive with its bill of materials ${archive%.tar}.cdx.json"
else
  say "left" "image: \`make images\` builds it (root, Debian)"
fi
rm -rf "$out/venv"
say "left" "push, digests of the registry, SBOM and provenance of the images, signatures: .github/workflows/release.yaml"
