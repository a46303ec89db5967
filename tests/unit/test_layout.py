"""Facts about the source tree that would break in ways that are hard to see."""

import logging
import operator
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlscaler_live.cli import SUMMARY, main

ROOT = Path(__file__).parents[2]


def test_operator_folder_is_not_a_package() -> None:
    """An `operator/__init__.py` would shadow the standard library's module under `python -m`."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert Path(operator.__file__).parent.name != "operator"


@pytest.mark.parametrize("point", sorted(entry_points(group="rlscaler.commands"), key=lambda p: p.name), ids=str)
def test_every_command_has_help_and_a_summary(point) -> None:
    assert point.name in SUMMARY
    result = CliRunner().invoke(main, [point.name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_debug_logs_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSCALER_DEBUG", "1")
    seen: dict[str, object] = {}
    monkeypatch.setattr(logging, "basicConfig", seen.update)
    assert CliRunner().invoke(main, ["crd", "--help"]).exit_code == 0
    assert seen == {"level": logging.DEBUG}


def test_readme_has_no_gap() -> None:
    assert not re.findall(r"^[A-Z]+_[A-Z_]+$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
