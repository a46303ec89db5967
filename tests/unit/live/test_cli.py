"""The root command: headings, and what is said of a command that does not exist."""

from importlib.metadata import EntryPoint

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from rlscaler_live import cli
from rlscaler_live.cli import main


def test_every_command_stands_under_one_heading():
    said = CliRunner().invoke(main, ["--help"]).output
    names = [
        line.split()[0] for line in said.partition("\nUse:")[2].splitlines() if line[:2] == "  " and line[2] != " "
    ]
    assert sorted(names) == main.list_commands(None)
    assert [line for line in said.splitlines() if line.endswith(":") and line[0] != " "] == [
        *("Options:", "Use:", "Train:", "Operate:", "Develop:")
    ]


def test_an_unknown_command_is_answered_with_the_ones_that_look_like_it():
    done = CliRunner().invoke(main, ["publihs"])
    assert done.exit_code == 2
    assert "No such command 'publihs': did you mean publish?" in done.output
    assert "did you mean" not in CliRunner().invoke(main, ["xyzzy"]).output


@pytest.fixture
def _broken_command(monkeypatch):
    broken = EntryPoint("broken", "no_such_package.cli:command", cli.GROUP)
    monkeypatch.setattr(cli, "entry_points", lambda group, name=None: [broken] if name in (None, "broken") else [])


@pytest.mark.usefixtures("_broken_command")
def test_a_command_that_cannot_be_loaded_is_listed_and_takes_no_other_with_it():
    said = CliRunner().invoke(main, ["--help"])
    assert said.exit_code == 0
    assert "broken" in said.output
    assert "no_such_package" in said.output


@pytest.mark.usefixtures("_broken_command")
def test_completion_names_commands_that_cannot_be_loaded():
    completed = ShellComplete(main, {}, "rlscaler", "_RLSCALER_COMPLETE").get_completions([], "")
    assert {"broken", "status", "train"} <= {item.value for item in completed}
