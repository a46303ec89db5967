"""Facts about the source tree that would break in ways that are hard to see."""

import operator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_operator_folder_is_not_a_package() -> None:
    """An `operator/__init__.py` would shadow the standard library's module under `python -m`."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert Path(operator.__file__).parent.name != "operator"


@pytest.mark.parametrize("point", sorted(entry_points(group="rlscaler.commands"), key=lambda p: p.name), ids=str)
def test_every_command_has_help_and_a_summary(point) -> None:
    from click.testing import CliRunner

    from rlscaler_operator.cli import SUMMARY, main

    assert point.name in SUMMARY
    result = CliRunner().invoke(main, [point.name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output
