"""Pages that the commands print on a terminal as parts of an HTML page: a table stays a table, text stays text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Part:
    """A text, or a table with its title and rows."""

    text: str = ""
    title: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def attempted(page: Callable[[Mapping[str, Any]], RenderableType | None], body: Mapping[str, Any]) -> list[Part]:
    """Return the parts of a page of a policy; for an object that cannot be read a text that says so."""
    try:
        shown = page(body)
        return [] if shown is None else list(parts_of(shown))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        return [Part(text=f"This cannot be shown ({type(error).__name__}: {error}): see `kubectl get rlsp -o yaml`.")]


def parts_of(page: RenderableType) -> Iterator[Part]:
    """Yield the parts of a page of `rlscaler explain` or `rlscaler status`, in their order."""
    if isinstance(page, Group):
        for part in page.renderables:
            yield from parts_of(part)
    elif isinstance(page, Table):
        columns = [list(column.cells) for column in page.columns]
        headers = [_plain(column.header) for column in page.columns]
        rows = [[_plain(cell) for cell in row] for row in zip(*columns, strict=True)]
        yield Part(title=_plain(page.title or ""), columns=headers if any(headers) else (), rows=rows)
    elif text := _plain(page).strip("\n"):
        yield Part(text=text)


def _plain(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
