"""The root command: headings, and what is said of a command that does not exist."""

from click.testing import CliRunner

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
