"""The commands in the pages that a newcomer reads, in the order in which they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

PAGES = (
    "README.md",
    "docs/quick-start.md",
    "docs/guides/clone-to-decision.md",
    "docs/guides/from-hpa.md",
    "docs/guides/from-keda.md",
    "docs/keda.md",
    "docs/container-images.md",
    "docs/development.md",
    "CONTRIBUTING.md",
)

_BLOCK = re.compile(r"^```(bash|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s+#\s.*$")


class Command(NamedTuple):
    """One command, with its continuation lines joined and its comment taken away."""

    page: str
    text: str


def commands(root: Path) -> list[Command]:
    """Return the commands of all pages, each of a page once."""
    found = [Command(page, text) for page in PAGES for text in _of((root / page).read_text(encoding="utf-8"))]
    return list(dict.fromkeys(found))


def _of(page: str) -> list[str]:
    blocks = [body for language, body in _BLOCK.findall(page) if language == "bash"]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    without_comments = (_COMMENT.sub("", line) for line in lines if not line.lstrip().startswith("#"))
    return [" ".join(line.split()) for line in without_comments if line.strip()]


def manifest(root: Path, page: str) -> str:
    """Return the first YAML block of a page: the object that its commands apply."""
    blocks = [
        body for language, body in _BLOCK.findall((root / page).read_text(encoding="utf-8")) if language == "yaml"
    ]
    return str(blocks[0])
