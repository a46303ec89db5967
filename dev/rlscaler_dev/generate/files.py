"""Files that are generated and committed: written by one command, checked for drift by another."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import click

Render = Callable[[], str]


def write(output: Path, text: str) -> None:
    """Write the file, or standard output where it is `-`."""
    if str(output) == "-":
        click.echo(text, nl=False)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    click.echo(f"wrote {output}", err=True)


def differs(path: Path, render: Render, remedy: str) -> bool:
    """Whether the file differs from what is generated now; says how and what to do."""
    committed = path.read_text(encoding="utf-8") if path.is_file() else ""
    diff = list(
        difflib.unified_diff(
            committed.splitlines(keepends=True), render().splitlines(keepends=True), str(path), "generated"
        )
    )
    if diff:
        click.echo("".join(diff), nl=False)
        click.echo(f"{path} is not what is generated now: run '{remedy}' and commit it", err=True)
    return bool(diff)
