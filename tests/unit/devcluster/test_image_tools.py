"""The pip of the build image, whatever pip there is beside the command that builds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rlscaler_dev.cluster.images import base


class Machine:
    """Runs commands as `Buildah.run` does, without mounts of their own."""

    def run(self, *command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def environment(folder: Path, kind: str) -> Path:
    """Make a virtual environment; its Python."""
    options = ["--without-pip"] if kind == "none" else []
    subprocess.run([sys.executable, "-m", "venv", *options, str(folder)], check=True)
    if kind == "newest":
        (installed,) = folder.glob("lib/python*/site-packages/pip-*.dist-info")
        newest = installed.rename(installed.with_name("pip-99.0.dist-info"))
        metadata = newest / "METADATA"
        version = installed.name.removeprefix("pip-").removesuffix(".dist-info")
        metadata.write_text(metadata.read_text().replace(f"\nVersion: {version}\n", "\nVersion: 99.0\n"))
    return folder / "bin/python"


@pytest.mark.slow  # each makes a virtual environment
@pytest.mark.parametrize("kind", ["bundled", "newest", "none"])
def test_pip_is_found_whatever_the_environment_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(sys, "executable", str(environment(tmp_path / "environment", kind)))
    context = tmp_path / "context"
    context.mkdir()
    assert base._tools(Machine(), context) == base.TOOLS_DOCKERFILE  # type: ignore[arg-type]
    assert {path.name for path in context.iterdir()} == {"pip"}
    command = [sys.executable, "-S", "-c", "import pip; print(pip.__file__)"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONPATH": str(context)})
    assert found.stdout.strip() == str(context / "pip/__init__.py")


def test_a_python_without_ensurepip_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's python3 without python3-venv."""
    from rlscaler_dev.exceptions import BuildError

    def refused(*_: str) -> str:
        raise BuildError("`python` failed with code 1; the log ends with\nNo module named ensurepip")

    machine = Machine()
    monkeypatch.setattr(machine, "run", refused)
    with pytest.raises(BuildError, match="python3-venv"):
        base._tools(machine, tmp_path)  # type: ignore[arg-type]
