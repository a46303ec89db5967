"""The pages of the documentation, and what is code in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")]
PAGES = sorted([*TOP, *(ROOT / "docs").rglob("*.md"), *(ROOT / "helm").glob("*/README.md")])

FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
INDENTED = re.compile(r"^ {4,}(.*)$", re.MULTILINE)
PROMPT = "$ "


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks() -> Iterator[Block]:
    """Every fenced block."""
    for page in PAGES:
        for match in FENCE.finditer(page.read_text(encoding="utf-8")):
            yield Block(name(page), match["language"], match["text"])


def command_lines(program: str) -> list[tuple[str, str]]:
    """(page, line) of every command line of the program: in blocks, and in sentences as inline code."""
    found = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        prose = FENCE.sub("", text)
        code = [match["text"] for match in FENCE.finditer(text) if match["language"] != "yaml"]
        lines = "\n".join([*code, *INDENTED.findall(prose)]).replace("\\\n", " ").splitlines()
        lines += [" ".join(inline.split()) for inline in INLINE.findall(prose)]
        for line in lines:
            line = line.strip().removeprefix(PROMPT)
            if line.startswith(f"{program} "):
                found.add((name(page), line))
    return sorted(found)


def words(line: str) -> list[str]:
    """The words of one command line, up to a pipe, a redirection, the next command or an ellipsis."""
    line = re.split(r"\s(?:\||>|&&|;|…|\.\.\.|<)", line)[0]
    return shlex.split(line, comments=True)
