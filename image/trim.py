"""Cut an image's libraries down to the modules that run: `python3 trim.py FOLDER NAME...` in the build stage.

The names are modules, or attributes of modules, that the image starts from. Each is loaded in a process of its own
(Locust patches the standard library). Of the generated Kubernetes clients, 1,900 files and most of the space, only what
was loaded then stays; of the other libraries go tests, type stubs, headers, scripts and developers' tools. What was
loaded is compiled to bytecode, so that a container with a read-only root does not compile it at every start; the rest
stays source. At the end the names are loaded again, and a missing file fails the build.
"""

from __future__ import annotations

import json
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

GENERATED = [f"kubernetes/{client}/{kind}" for client in ("client", "aio/client") for kind in ("api", "models")]
"""Folders of one module per class or API, each loaded only when it is asked for."""

NEVER_RUN = [
    "bin",
    "**/tests",
    "**/*_test.py",
    "**/*.pyi",
    "**/*.pxd",
    "**/__pycache__",
    "numpy/_core/include",
    "numpy/_core/lib",
    "numpy/distutils",
    "numpy/f2py",
    "onnxruntime/backend",
    "onnxruntime/datasets",
    "onnxruntime/quantization",
    "onnxruntime/tools",
    "onnxruntime/transformers",
]

PROBE = """
import json, pkgutil, sys
pkgutil.resolve_name(sys.argv[1])
print(json.dumps([file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]))
"""


def main() -> None:
    """Trim the folder and print the bytes saved."""
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:]
    before = size(folder)
    for pattern in NEVER_RUN:
        for path in list(folder.glob(pattern)):
            remove(path)
    modules = loaded(folder, names)
    for generated in GENERATED:
        for file in (folder / generated).glob("*.py"):
            if file not in modules and file.name != "__init__.py":
                file.unlink()
    for file in sorted(modules):
        py_compile.compile(str(file), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    loaded(folder, names)
    print(f"{folder}: {before / 1e6:.1f} MB before, {size(folder) / 1e6:.1f} MB now")


def loaded(folder: Path, names: list[str]) -> set[Path]:
    """Source files in the folder that loading the names needs; fails where one cannot be loaded."""
    files: set[Path] = set()
    for name in names:
        done = subprocess.run([sys.executable, "-B", "-c", PROBE, name], check=True, stdout=subprocess.PIPE)
        files |= {Path(file).resolve() for file in json.loads(done.stdout.splitlines()[-1])}
    return {file for file in files if file.suffix == ".py" and file.is_relative_to(folder)}


def remove(path: Path) -> None:
    """Delete a file or a tree."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def size(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


if __name__ == "__main__":
    main()
