"""The pages of the documentation, and the code in them."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rlscaler_dev.generate import cli as generate

ROOT = Path(__file__).parents[3]
TOP = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md")

FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
INDENTED = re.compile(r"^ {4,}(.*)$", re.MULTILINE)
PROMPT = "$ "


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str


@cache
def texts() -> dict[str, str]:
    """Return the text of every page by its path below the root; generated pages are rendered, not read."""
    with contextlib.chdir(ROOT):
        generated = {str(path): render() for path, render in generate.pages()}
    files = [*(ROOT / name for name in TOP), *(ROOT / "docs").rglob("*.md"), *(ROOT / "helm").glob("*/README.md")]
    committed = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}
    return dict(sorted((committed | generated).items()))


def blocks() -> Iterator[Block]:
    """Yield every fenced block of every page."""
    for page, text in texts().items():
        for match in FENCE.finditer(text):
            yield Block(page, match["language"], match["text"])


def command_lines(program: str) -> list[tuple[str, str]]:
    """Return (page, line) of every command line of the program: in blocks, and in sentences as inline code."""
    lines = set()
    for page, text in texts().items():
        prose = FENCE.sub("", text)
        code = [match["text"] for match in FENCE.finditer(text) if match["language"] != "yaml"]
        candidates = "\n".join([*code, *INDENTED.findall(prose)]).replace("\\\n", " ").splitlines()
        candidates += [" ".join(inline.split()) for inline in INLINE.findall(prose)]
        stripped = (candidate.strip().removeprefix(PROMPT) for candidate in candidates)
        lines |= {(page, line) for line in stripped if line.startswith(f"{program} ")}
    return sorted(lines)


def words(line: str) -> list[str]:
    """Return the words of one command line, up to a pipe, a redirection, the next command or an ellipsis."""
    line = re.split(r"\s(?:\||>|&&|;|…|\.\.\.|<)", line)[0]
    return shlex.split(line, comments=True)
