"""Result files: strict JSON documents, written beside a report in Markdown and printed as one or the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from pydantic import BaseModel, ConfigDict

from rlscaler_rl.results.table import Table

Progress = Callable[[str], None]
"""It is told each step of a command that takes minutes."""


class Document(BaseModel):
    """A JSON object of a result file: immutable, and without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def json_text(self) -> str:
        """Return the JSON as it stands in result files and on standard output."""
        return self.model_dump_json(indent=1)


def write(document: Document, lines: Sequence[str], folder: Path, name: str) -> None:
    """Write NAME.json and NAME.md into a folder, which is created where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(document.json_text() + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def show(document: Document, lines: Sequence[str], output: str) -> None:
    """Print the JSON alone where `output` is `json`, else the lines of the report."""
    click.echo(document.json_text() if output == "json" else "\n".join(lines))


def show_table(document: Document, table: Table, notes: Sequence[str], output: str, width: int = 0) -> None:
    """Print the JSON alone where `output` is `json`, else a table for the terminal and a line for each note.

    :param width: as in `print_table`.
    """
    if output == "json":
        click.echo(document.json_text())
    else:
        print_table(table, notes, width)


def print_table(table: Table, notes: Sequence[str], width: int = 0) -> None:
    """Print a table and a line for each note on a terminal that is taken to have `width` columns at least."""
    from rich.console import Console

    console = Console(width=max(Console().width, width), highlight=False)
    console.print(table.rich())
    for note in notes:
        console.print(note, soft_wrap=True, markup=False)


@contextmanager
def progress(output: str) -> Iterator[Progress]:
    """Yield a function that shows each step: beside a spinner on a terminal, else on a line of its own.

    Where `output` is `json`, standard output is for the JSON, and the steps go to standard error.
    """
    from rich.console import Console

    console = Console(highlight=False, stderr=output == "json")
    with console.status("") as status:
        yield status.update if console.is_terminal else console.print
