"""`rlscaler structure`: the size of the source tree, its gate in `make lint`, and the modules that one run enters."""

from __future__ import annotations

import json
import runpy
import sys
import threading
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from rlscaler_core.options import output_option
from rlscaler_dev.size import COUNTED, GATE, committed, counted, problems, rendered, unexplained

Rooms = defaultdict[str, set[str]]
"""Modules by their room."""


@click.group()
def structure() -> None:
    """Measure the source tree, check that it does not grow, and list the files that a run enters."""


root_option = click.option("--root", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".")


@structure.command()
@root_option
@click.option("--write", is_flag=True, help="Lower the limits to the present counts.")
@click.option("--reason", help="With --write, also raise limits to the present counts, for this reason.")
def check(root: Path, write: bool, reason: str | None) -> None:
    """Exit with 1 where a package has more lines, words or odd docstrings than dev/size.toml allows."""
    counts, text = counted(root), (root / GATE).read_text(encoding="utf-8")
    gate = tomllib.loads(text)
    if write:
        lowered = {name: {p: min(most, counts[name][p]) for p, most in gate[name].items()} for name in COUNTED}
        limits = counts if reason else lowered
        (root / GATE).write_text(rendered(reason or gate["reason"], limits), encoding="utf-8")
        return
    if failures := problems(counts, gate) + unexplained(committed(root, text), text):
        raise click.ClickException("\n".join(["the source tree grew:", *failures]))


@structure.command()
@root_option
@output_option
def measure(root: Path, output: str) -> None:
    """Print files, lines, words, docstrings, commands and options of each package."""
    from rlscaler_live.cli import main  # which loads this module

    counts = counted(root)
    packages = sorted({package for counter in counts.values() for package in counter})
    rows = {package: {name: counter[package] for name, counter in counts.items()} for package in packages}
    rows["all"] = {name: counter.total() for name, counter in counts.items()}
    commands, options = _commands(main)
    if output == "json":
        click.echo(json.dumps({"packages": rows, "commands": commands, "options": options}, indent=2))
        return
    table = Table("package", *counts, box=None, padding=(0, 1, 0, 0))
    for package, row in rows.items():
        table.add_row(package, *(f"{number:,}" if number else "" for number in row.values()))
    Console().print(table)
    total = rows["all"]
    for name in ("what", "begins", "gives"):
        click.echo(f"docstrings, {name}: {100 * total[name] / max(total['docstrings'], 1):.1f} %")
    click.echo(f"empty names: {100 * total['empty'] / max(total['names'], 1):.1f} %")
    click.echo(f"{commands} commands, {options} options")


def _commands(command: click.Command) -> tuple[int, int]:
    """Return the number of commands below a command, and of the options of all of them."""
    context = click.Context(command)
    commands, options = 0, sum(isinstance(parameter, click.Option) for parameter in command.params)
    if isinstance(command, click.Group):
        for child in filter(None, (command.get_command(context, name) for name in command.list_commands(context))):
            below, more = _commands(child)
            commands, options = commands + 1 + below, options + more
    return commands, options


@structure.command(context_settings={"ignore_unknown_options": True})
@click.option("--begin", help="Name of the function whose first call starts the record; default: the program's start.")
@click.option("--end", help="Name of the function whose first call afterwards ends the record.")
@click.option("--field", help="List the files that name this field, such as budget_per_hour, and run no program.")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def walk(begin: str | None, end: str | None, field: str | None, program: tuple[str, ...]) -> None:
    """Run PROGRAM (a Python file and its arguments) and print the product's modules that it enters, as JSON."""
    rooms = _naming(field) if field else _entered(program, begin, end)
    entered = {room: sorted(modules) for room, modules in sorted(rooms.items())}
    modules = sum(map(len, entered.values()))
    click.echo(json.dumps({"modules": modules, "rooms": len(entered), "entered": entered}, indent=2), err=True)


def _naming(field: str) -> Rooms:
    """Return the modules whose text has a field, in snake case or in camel case."""
    first, *rest = field.split("_")
    names = (field, first + "".join(map(str.title, rest)))
    rooms: Rooms = defaultdict(set)
    for path in Path().glob("*/rlscaler_*/**/*.py"):
        if any(name in path.read_text(encoding="utf-8") for name in names):
            _enter(rooms, ".".join(path.with_suffix("").parts[1:]))
    return rooms


def _enter(rooms: Rooms, module: str) -> None:
    """Record a module under its room: the package and the folder or module directly below it."""
    rooms[".".join(module.split(".")[:2])].add(module.rpartition(".")[2])


def _entered(program: Sequence[str], begin: str | None, end: str | None) -> Rooms:
    """Run a program and return the modules whose functions were called between two calls."""
    rooms: Rooms = defaultdict(set)
    recording, ended = begin is None, False

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal recording, ended
        if event != "call" or ended:
            return
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        if not recording:
            recording = code.co_name == begin
        elif end is not None and code.co_name == end:
            ended = True
        # A module's own body runs when it is imported, which says nothing about the run.
        if recording and not ended and code.co_name != "<module>" and module.startswith("rlscaler_"):
            _enter(rooms, module)

    sys.argv = list(program)
    sys.path.insert(0, str(Path(program[0]).resolve().parent))
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        runpy.run_path(program[0], run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return rooms
