"""Tables and pages on the terminal, and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

UNKNOWN = "-"


def print_page(page: RenderableType, wrap: bool = True) -> None:
    """Print a page; without `wrap` a line that is longer than the terminal is wide stays one line."""
    from rich.console import Console

    Console(highlight=False, soft_wrap=not wrap).print(page)


def print_json(document: Mapping[str, Any]) -> None:
    click.echo(json.dumps(document, indent=2))


def simple_table(*columns: str) -> Table:
    """Return a table without frame whose cells are folded on a narrow terminal, those of the first column never."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, overflow="fold" if number else "ellipsis")
    return table
