"""Every command line in the documentation exists, with its options."""

import re
from itertools import pairwise

import click
import pytest
import yaml

from rlscaler_live.cli import main
from tests.unit.docs.pages import ROOT, command_lines, words

RLSCALER = command_lines("rlscaler")
MAKE = command_lines("make")
HELM = [(page, line) for page, line in command_lines("helm") if "helm/rlscaler" in line]

PLACEHOLDER = re.compile(r"^[A-Z_]+$|^\W+$")


@pytest.mark.parametrize(("page", "line"), RLSCALER)
def test_rlscaler_understands_it(page: str, line: str) -> None:
    command, path = main, ["rlscaler"]
    options = set(_options(main))
    for word in words(line)[1:]:
        if word == "--" or (isinstance(command, click.Group) and PLACEHOLDER.match(word)):
            break
        if word.startswith("-"):
            assert word.split("=")[0] in options, f"{page}: {' '.join(path)} has no option {word}"
        elif isinstance(command, click.Group):
            child = command.get_command(click.Context(command), word)
            if child is None and command.invoke_without_command:
                continue
            assert child is not None, f"{page}: {' '.join(path)} has no command {word}"
            command = child
            path.append(word)
            options |= set(_options(child))


def _options(command: click.Command) -> list[str]:
    parameters = command.get_params(click.Context(command))
    return [name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)]


@pytest.mark.parametrize(("page", "line"), MAKE)
def test_make_has_the_target_and_the_variables(page: str, line: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    for word in words(line)[1:]:
        if "=" in word:
            assert f"$({word.split('=')[0]})" in makefile, f"{page}: the Makefile reads no {word}"
        elif re.match(r"^[a-z]", word):
            assert word in targets, f"{page}: no target {word}"


@pytest.mark.parametrize(("page", "line"), HELM)
def test_the_chart_has_the_values_that_are_set(page: str, line: str) -> None:
    found = words(line)
    chart = next(word for word in found if word.startswith("helm/"))
    values = yaml.safe_load((ROOT / chart / "values.yaml").read_text(encoding="utf-8"))
    for flag, setting in pairwise(found):
        if flag not in ("--set", "--set-string"):
            continue
        here = values
        for key in setting.split("=")[0].split("."):
            assert key in here, f"{page}: {chart} has no value {setting}"
            here = here[key]
