"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without a line break at its end. Cells are Markdown already; a pipe in a cell is escaped."""
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    names = "|" + "".join(f" {name} |" if name else " |" for name in head)
    return "\n".join([names, "|" + "---|" * len(head), *map(_row, escaped)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"
