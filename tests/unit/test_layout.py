"""Facts about the source tree that would break in ways that are hard to see."""

import ast
import logging
import operator
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlscaler_live import cli
from rlscaler_live.cli import COMMANDS, GROUP, extra_with, main

ROOT = Path(__file__).parents[2]


def test_operator_folder_is_not_a_package() -> None:
    """An `operator/__init__.py` would shadow the standard library's module under `python -m`."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert Path(operator.__file__).parent.name != "operator"


def test_every_command_has_help() -> None:
    for name in sorted([*COMMANDS, *(point.name for point in entry_points(group=GROUP))]):
        result = CliRunner().invoke(main, [name, "--help"])
        assert result.exit_code == 0, (name, result.output)
        assert "Usage:" in result.output, name


@pytest.mark.parametrize(
    ("package", "extra"),
    [
        ("locust", "load"),
        ("matplotlib", "plot"),
        ("ray", "ray"),
        ("stable_baselines3", "train"),
        ("torch", "train"),
        ("numpy", None),
        ("nowhere", None),
    ],
)
def test_the_extra_of_a_package_is_known(package: str, extra: str | None) -> None:
    assert extra_with(package) == extra


@pytest.mark.parametrize(("command", "extra"), [("estimate", "estimate"), ("days", "estimate"), ("train", "train")])
def test_the_extra_without_torch_is_named_where_it_is_enough(
    command: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    lines = [f"{package}; extra == '{name}'" for name, packages in extras.items() for package in packages]
    monkeypatch.setattr(cli, "requires", lambda _: lines)
    assert extra_with("numba", command) == extra
    assert extra_with("torch", command) == "train"


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (["trace", "plot"], "matplotlib", "plot"),
        (["evaluate"], "optuna", "train"),
        (["train", "--steps", "1"], "numba", "train"),
        (["load", "run", "--host", "http://127.0.0.1:1"], "locust", "load"),
        (["load", "worker", "--master", "127.0.0.1"], "locust", "load"),
    ],
)
def test_a_command_names_the_extra_that_it_lacks(command: list[str], package: str, extra: str) -> None:
    """In a process of its own, where nothing has imported the package before."""
    program = f"import sys; sys.modules[{package!r}] = None; from rlscaler_live.cli import main; main({command!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"needs the package '{package}': `make install` in a clone" in done.stderr
    assert f"pip install '.[{extra}]'" in done.stderr


def test_debug_logs_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSCALER_DEBUG", "1")
    seen: dict[str, object] = {}
    monkeypatch.setattr(logging, "basicConfig", seen.update)
    assert CliRunner().invoke(main, ["crd", "--help"]).exit_code == 0
    assert seen == {"level": logging.DEBUG}


def test_readme_has_no_gap() -> None:
    assert not re.findall(r"^[A-Z]+_[A-Z_]+$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


ROOMS = ("core", "operator", "rl", "live", "loadgen", "scheduler", "dev")


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_private_module_of_a_library_is_imported() -> None:
    """A library may move what begins with an underscore in any release, without a word in its change log."""
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    assert len(files) > 300
    private = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        for name in _imported(ast.parse(file.read_text(encoding="utf-8")))
        if re.search(r"(^|\.)_(?!_)", name) and not name.startswith(("rlscaler_", "__future__"))
    ]
    assert not private, "use the library's public names, or add a test that says when this one moves"
