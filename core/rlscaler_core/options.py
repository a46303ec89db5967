"""Options that all commands share: `-o`, files and folders, and the place that a command writes to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

FILE, FOLDER = (click.Path(dir_okay=False, path_type=Path), click.Path(file_okay=False, path_type=Path))
PRESENT_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
PRESENT_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def output_option(command: F) -> F:
    """Add to a command the option `-o` of all commands for users: text for people, or JSON for programs.

    With `json` a command prints one document to standard output, and its progress to standard error.
    """
    kinds = click.Choice(["text", "json"])
    return click.option("-o", "--output", type=kinds, default="text", show_default=True, help="json: for programs.")(
        command
    )


def names_in(option: str, text: str) -> tuple[str, ...]:
    """Return the names that the text of an option holds, separated by commas. Raises UsageError where there is none."""
    names = tuple(name for name in map(str.strip, text.split(",")) if name)
    if not names:
        raise click.UsageError(f"{option} {text!r}: names nothing; write names with commas between, or leave it out")
    return names


def fresh(place: Path, force: bool) -> None:
    """Refuse a file that is there already, unless `--force` is given. Raises UsageError."""
    if place.exists() and not force:
        raise click.UsageError(f"{place}: exists; name another place or add --force")


def writable(context: click.Context, parameter: click.Parameter, place: Path | None) -> Path | None:
    """Refuse a file or folder that cannot be written, before any work is done for it: the callback of an option.

    Folders that are missing above it are taken for ones that can be made. Raises BadParameter, which names the option.
    """
    if place is None:
        return None
    whole = place.absolute()
    there = next(parent for parent in (whole, *whole.parents) if parent.exists())
    if there != whole and not there.is_dir():
        raise click.BadParameter(f"{place}: {there} is a file, no folder: name another place", context, parameter)
    if not os.access(there, os.W_OK):
        raise click.BadParameter(f"{place}: {there} may not be written: name another place", context, parameter)
    return place
