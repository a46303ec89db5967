"""The gate on the size of the source tree: what is counted, what is refused, and how a limit moves."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlscaler_dev.size import GATE, counted, rendered
from rlscaler_dev.structure import structure

CODE = '''"""What it is."""

made = 1
"""Gives a number."""


def half(one: float) -> float:
    """Return what is half."""
    return one / 2
'''


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A committed tree whose limits are its counts."""
    for name, text in {
        "core/rlscaler_core/half.py": CODE,
        "core/rlscaler_core/half_pb2.py": CODE,
        "tests/unit/core/test_half.py": "assert True\n",
        "docs/index.md": "three short words\n",
        "docs/guides/first.md": "two words\n",
        "README.md": "one\n",
        "helm/chart/README.md": "generated\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    (tmp_path / GATE).parent.mkdir()
    (tmp_path / GATE).write_text(rendered("first counts", counted(tmp_path)))
    commit(tmp_path)
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), "-c", "user.name=n", "-c", "user.email=n@n", *arguments], check=True)


def commit(root: Path) -> None:
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "next")


def check(root: Path, *options: str) -> Result:
    return CliRunner().invoke(structure, ["check", "--root", str(root), *options])


def replace(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_counts_of_a_tree(root: Path) -> None:
    assert {name: dict(counter) for name, counter in counted(root).items()} == {
        "lines": {"core": 9},
        "tests": {"tests/unit": 1},
        "words": {"docs": 3, "docs/guides": 2, ".": 1},
        "what": {"core": 2},
        "begins": {"core": 1},
        "gives": {"core": 1},
        "empty": {"core": 2},
        "files": {"core": 1},
        "docstrings": {"core": 3},
        "names": {"core": 2},
    }
    assert check(root).exit_code == 0


@pytest.mark.parametrize(
    ("path", "before", "after", "sentence"),
    [
        ("core/rlscaler_core/half.py", "made = 1", "made = 1\n", "core: 10 lines, 9 allowed: delete or merge code"),
        (
            "core/rlscaler_core/half.py",
            "Return what",
            "Tell what",
            "core: 2 docstrings that begin with Give, Say or Tell, 1 allowed: write Return",
        ),
        (
            "tests/unit/core/test_half.py",
            "True\n",
            "True\n\n",
            "tests/unit: 2 lines of tests, 1 allowed: merge or delete tests",
        ),
        ("docs/index.md", "short", "very short", "docs: 4 words, 3 allowed: shorten a page"),
    ],
)
def test_more_than_the_limit_is_refused(root: Path, path: str, before: str, after: str, sentence: str) -> None:
    replace(root / path, before, after)
    result = check(root)
    assert result.exit_code == 1
    assert sentence in result.output
    assert "or raise the number in dev/size.toml with a reason" in result.output


def test_a_new_package_needs_a_limit(root: Path) -> None:
    (root / "core").rename(root / "kernel")
    git(root, "add", ".")
    assert "kernel: 9 lines, 0 allowed" in check(root).output


def test_a_limit_rises_only_with_a_new_reason_in_the_same_commit(root: Path) -> None:
    replace(root / GATE, '"docs" = 3', '"docs" = 4')
    refused = check(root)
    assert "dev/size.toml: words.docs rises from 3 to 4: write a new reason" in refused.output
    commit(root)
    assert check(root).exit_code == 1, "also after the commit"
    replace(root / GATE, "first counts", "a page more")
    assert check(root).exit_code == 0


def test_write_lowers_limits_and_never_raises_them(root: Path) -> None:
    replace(root / "docs/index.md", "short ", "")
    replace(root / "docs/guides/first.md", "two", "two more")
    assert check(root, "--write").exit_code == 0
    assert tomllib.loads((root / GATE).read_text())["words"] == {".": 1, "docs": 2, "docs/guides": 2}
    assert check(root, "--write", "--reason", "a longer guide").exit_code == 0
    gate = tomllib.loads((root / GATE).read_text())
    assert (gate["reason"], gate["words"]["docs/guides"]) == ("a longer guide", 3)
    assert check(root).exit_code == 0


def test_measure_counts_commands_and_options(root: Path) -> None:
    result = CliRunner().invoke(structure, ["measure", "--root", str(root), "-o", "json"])
    measured = json.loads(result.output)
    assert measured["commands"] > 30
    assert measured["options"] > measured["commands"]
    assert measured["packages"]["core"]["lines"] == 9
    assert set(measured["packages"]) == {"core", "docs", "docs/guides", "tests/unit", ".", "all"}


def test_walk_lists_the_modules_of_a_run_and_those_that_name_a_field(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("from rlscaler_core.options import names_in\ndef start():\n    names_in('--a', 'b')\nstart()\n")
    result = CliRunner().invoke(structure, ["walk", "--begin", "start", str(program)])
    assert json.loads(result.stderr) == {"modules": 1, "rooms": 1, "entered": {"rlscaler_core.options": ["options"]}}
    result = CliRunner().invoke(structure, ["walk", "--field", "budget_per_hour"])
    assert "rlscaler_core.api" in json.loads(result.stderr)["entered"]
