#!/usr/bin/env bash
# Package both charts with a release's images as their defaults, the operator's by its digest: what the release does, and
# `make release-dry`. charts.sh FOLDER VERSION REGISTRY DIGEST [RUNBOOKS_URL]
set -euo pipefail
out=${1:?folder} version=${2:?version} registry=${3:?registry} digest=${4:?digest} runbooks=${5:-}
[[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "charts.sh: $digest: is no digest" >&2; exit 2; }
for name in rlscaler rlscaler-demo; do
  chart=$(mktemp -d)
  cp -r "helm/$name/." "$chart"
  sed -i "s#localhost/rlscaler#$registry/rlscaler#; s#^  digest: \"\"#  digest: \"$digest\"#" "$chart/values.yaml"
  sed -i "s#runbookBaseUrl: \"\"#runbookBaseUrl: \"$runbooks\"#" "$chart/values.yaml"
  helm package "$chart" --version "$version" --app-version "$version" --destination "$out"
  rm -rf "$chart"
done
