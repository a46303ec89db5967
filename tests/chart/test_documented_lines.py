"""Every `helm install` and `helm upgrade` line of a page, with the charts and values that it names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.chart.charts import template
from tests.harness.helm import Helm, HelmError
from tests.harness.setup import REPOSITORY

PAGES = ("README.md", "helm/rlscaler/README.md", "helm/rlscaler-demo/README.md")
KEEPS = {"--reset-then-reuse-values", "--reuse-values"}
"""Options of an upgrade that keep the values of the release; `--values` gives all of them again."""

GIVES = ("--set", "--set-json", "--set-string")

_LINE = re.compile(r"^ *(helm (?:install|upgrade) .*)$", re.MULTILINE)
_YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


class Line(NamedTuple):
    """One command as it stands in a page, its continuation lines joined."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def lines() -> list[Line]:
    """The lines of all pages that name one of the charts."""
    found = []
    for path in [*(REPOSITORY / page for page in PAGES), *sorted((REPOSITORY / "docs").rglob("*.md"))]:
        texts = _LINE.findall(path.read_text().replace("\\\n", " "))
        page = str(path.relative_to(REPOSITORY))
        found += [Line(page, tuple(shlex.split(text, comments=True))) for text in texts]
    return found


LINES = lines()


def options(line: Line, folder: Path) -> list[str]:
    """The values that a line gives; a file of values is the first example of its page that has some of the chart's."""
    given: list[str] = []
    for name, value in zip(line.words, line.words[1:], strict=False):
        if name in GIVES:
            given += [name, value.replace("$PROMETHEUS", "http://prometheus:9090")]
        elif name in ("--values", "-f"):
            page = (REPOSITORY / line.page).read_text()
            path = folder / value
            path.write_text(next(text for text in _YAML.findall(page) if "prometheus" in yaml.safe_load(text)))
            given += [name, str(path)]
    return given


def test_there_are_lines() -> None:
    assert len(LINES) > 15
    assert {"helm/rlscaler", "helm/rlscaler-demo"} == {line.words[3 + ("--install" in line.words)] for line in LINES}


@pytest.mark.slow
def test_a_line_is_taken_by_its_chart(helm: Helm, tmp_path: Path) -> None:
    failures = []
    for line in LINES:
        chart = REPOSITORY / line.words[3 + ("--install" in line.words)]
        try:
            rendered = template(helm, *options(line, tmp_path), chart=chart)
        except HelmError as error:
            failures.append(f"{line}: {error}")
        else:
            if not any(body["kind"] == "Deployment" for body in rendered):
                failures.append(f"{line}: renders no Deployment")
    assert not failures


def test_an_upgrade_keeps_earlier_values() -> None:
    """Helm forgets earlier values where new ones are given."""
    upgrades = [line for line in LINES if line.words[1] == "upgrade"]
    assert upgrades
    assert [str(line) for line in upgrades if not {*KEEPS, "--values"} & set(line.words)] == []
