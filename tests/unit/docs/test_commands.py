"""Every command line in the documentation exists, with its options. Each test lists all lines that fail."""

import re
from itertools import pairwise

import click
import pytest
import yaml

from rlscaler_live.cli import main
from tests.unit.docs.pages import ROOT, command_lines, words

PLACEHOLDER = re.compile(r"^[A-Z_]+$|^\W+$")


def failures(check, lines: list[tuple[str, str]]) -> list[str]:
    return [f"{page}: {line}: {failure}" for page, line in lines if (failure := check(words(line)))]


@pytest.mark.slow
def test_rlscaler_understands_every_line() -> None:
    lines = command_lines("rlscaler")
    assert len(lines) > 200
    assert not failures(_rlscaler_lacks, lines)


def _rlscaler_lacks(line: list[str]) -> str:
    """Return the first command or option of the line that does not exist; empty where all do."""
    command, path = main, ["rlscaler"]
    options = set(_options(main))
    for word in line[1:]:
        if word == "--" or (isinstance(command, click.Group) and PLACEHOLDER.match(word)):
            return ""
        if word.startswith("-"):
            if word.split("=")[0] not in options:
                return f"{' '.join(path)} has no option {word}"
        elif isinstance(command, click.Group):
            child = command.get_command(click.Context(command), word)
            if child is None and command.invoke_without_command:
                continue
            if child is None:
                return f"{' '.join(path)} has no command {word}"
            command = child
            path.append(word)
            options |= set(_options(child))
    return ""


def _options(command: click.Command) -> list[str]:
    parameters = command.get_params(click.Context(command))
    return [name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)]


def test_make_has_the_targets_and_the_variables() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))

    def make_lacks(line: list[str]) -> str:
        for word in line[1:]:
            if "=" in word and f"$({word.split('=')[0]})" not in makefile:
                return f"the Makefile reads no {word}"
            if "=" not in word and re.match(r"^[a-z]", word) and word not in targets:
                return f"no target {word}"
        return ""

    lines = command_lines("make")
    assert len(lines) > 30
    assert not failures(make_lacks, lines)


def test_the_charts_have_the_values_that_are_set() -> None:
    lines = [(page, line) for page, line in command_lines("helm") if "helm/rlscaler" in line]
    assert len(lines) > 10
    assert not failures(_chart_lacks, lines)


def _chart_lacks(line: list[str]) -> str:
    chart = next(word for word in line if word.startswith("helm/"))
    values = yaml.safe_load((ROOT / chart / "values.yaml").read_text(encoding="utf-8"))
    for flag, setting in pairwise(line):
        if flag not in ("--set", "--set-string"):
            continue
        here = values
        for key in setting.split("=")[0].split("."):
            if key not in here:
                return f"{chart} has no value {setting}"
            here = here[key]
    return ""
