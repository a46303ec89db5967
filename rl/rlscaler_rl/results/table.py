"""A table of text cells, and its forms: Markdown for pages, fixed width for text files, rich for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from rich.markup import escape
from rich.table import Table as RichTable

WIDTH = 110
"""Characters after which the note of a text table is wrapped."""


Column = str | Callable[[Any], str]
"""Format of an object's cell under a heading, such as `{0.j:.2f}`, or a function that returns it."""


@dataclass(frozen=True, slots=True)
class Table:
    """Header and rows of strings. The first `text_columns` columns are text, the others figures."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    note: str = ""
    text_columns: int = 1
    bold_first: bool = False
    """The first row stands out on a terminal."""

    @classmethod
    def of(
        cls, columns: Mapping[str, Column], rows: Iterable[Any], title: str = "", note: str = "", **options: Any
    ) -> Table:
        """Return a table with a row for each of the objects `rows`; `options` are further fields of the table."""
        cells = [tuple(_cell(form, row) for form in columns.values()) for row in rows]
        return cls(tuple(columns), cells, title, note, **options)

    def markdown(self) -> list[str]:
        """Return the header, the ruler and the rows as lines of Markdown, without title and note."""
        ruler = f"|{'---|' * len(self.header)}"
        header, *rows = (f"| {' | '.join(cells)} |" for cells in (self.header, *self.rows))
        return [header, ruler, *rows]

    def text(self) -> list[str]:
        """Return title, note and columns of fixed width as lines, figures to the right."""
        title = [self.title, "-" * len(self.title)] if self.title else []
        title += wrapped(self.note)
        if not self.rows:
            return [*title, "  none", ""]
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]

        def line(cells: Sequence[str]) -> str:
            aligned = (
                cell.ljust(width) if column < self.text_columns else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
            )
            return ("  " + "  ".join(aligned)).rstrip()

        return [*title, line(self.header), *(line(row) for row in self.rows), ""]

    def rich(self) -> RichTable:
        """Return the table for a terminal."""
        table = RichTable(title=self.title or None, title_justify="left", box=None, padding=(0, 1, 0, 0))
        for column, heading in enumerate(self.header):
            text = column < self.text_columns
            table.add_column(heading, justify="left" if text else "right", no_wrap=not column, overflow="fold")
        for number, row in enumerate(self.rows):
            table.add_row(*map(escape, row), style="bold" if self.bold_first and not number else None)
        return table


def _cell(form: Column, row: Any) -> str:
    if callable(form):
        return form(row)
    try:
        return form.format(row)
    except TypeError:  # a figure that is None has no format
        return "-"


def wrapped(text: str) -> list[str]:
    """Return the lines of a paragraph of a text file."""
    return wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
