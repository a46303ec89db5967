"""Tables, and texts that go into them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are Markdown already."""
    return "\n".join(
        [_row(head), "|" + "---|" * len(head), *(_row([cell.replace("|", "\\|") for cell in row]) for row in rows)]
    )


def code(value: str) -> str:
    """The value as inline code; empty where there is none.

    A backslash before a pipe is shown by some renderers and needed by others, so such a value is written in HTML.
    """
    if "|" in value:
        return f"<code>{html.escape(value).replace('|', '&#124;')}</code>"
    return f"`{value}`" if value else ""


def plain(text: str) -> str:
    """Text in which only backticks mean something, as Markdown."""
    parts = text.split("`")
    parts[::2] = [part.replace("*", "\\*").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"
