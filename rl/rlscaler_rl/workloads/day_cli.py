"""`rlscaler trace days`, `make` and `count`: the library of days, and files of one's own from logs and tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import output_option
from rlscaler_rl.workloads.names import WorkloadError

if TYPE_CHECKING:
    from rlscaler_loadgen.traces import Trace

_FILE = click.Path(path_type=Path, dir_okay=False)
_DAYS = click.option(
    "--days",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the files that do not ship; $RLSCALER_DAYS or ~/.local/share/rlscaler/days by default.",
)


@click.command()
@click.argument("names", nargs=-1)
@_DAYS
@click.option("--statistics", is_flag=True, help="Read the files that are there and measure them (half a minute).")
@click.option("--drawing", "compared", is_flag=True, help="Compare recorded seconds with seconds drawn from minutes.")
@click.option("--markdown", is_flag=True, help="A table for a page.")
@output_option
def days(
    names: tuple[str, ...], folder: Path | None, statistics: bool, compared: bool, markdown: bool, output: str
) -> None:
    """The library of days: what each of its loads (or of NAMES) is, where it comes from, and how it behaves."""
    from rlscaler_rl.workloads.day_facts import day_facts, table
    from rlscaler_rl.workloads.days import day_load, day_loads, there

    loads = {name: day_load(name) for name in names or day_loads()}
    here = [name for name in there(folder) if name in loads]
    if compared:
        _table(_compared([name for name in here if loads[name].seconds == "recorded"], folder), markdown)
        return
    facts = {name: day_facts(name, folder) for name in here} if statistics else {}
    if output == "json":
        found = [
            {"name": name, "days": load.days, "there": name in here}
            | load.model_dump(mode="json", exclude={"recipe"})
            | ({"statistics": asdict(facts[name])} if name in facts else {})
            for name, load in loads.items()
        ]
        click.echo(json.dumps(found, indent=1))
        return
    if statistics:
        _table(table(loads, facts), markdown)
    else:
        header = ("load", "what", "days", "bin (s)", "seconds", "group", "licence", "file")
        rows = [
            (
                name, load.what, str(load.days), f"{load.width_s:g}", load.seconds.value, load.group, load.licence,
                "ships" if load.ships else "there" if name in here else "to be made",
            )
            for name, load in loads.items()
        ]  # fmt: skip
        _table([header, *rows], markdown)
    if not markdown:
        click.echo(f"{sum(load.days for load in loads.values())} whole days of {len(loads)} loads, {len(here)} there")


@click.command()
@click.argument("name")
@click.argument("originals", type=_FILE, nargs=-1, required=True)
@_DAYS
@click.option("--force", is_flag=True, help="Overwrite the file.")
def make(name: str, originals: tuple[Path, ...], folder: Path | None, force: bool) -> None:
    """Make the library's file of load NAME out of the published ORIGINALS, and check that it is the same series.

    `rlscaler trace days NAME -o json` has the addresses of the originals.
    """
    from rlscaler_loadgen.traces import read_trace
    from rlscaler_rl.workloads.days import day_load, path_of
    from rlscaler_rl.workloads.originals import read_original

    load, out = day_load(name), path_of(name, folder)
    if load.recipe is None:
        raise click.UsageError(f"{name}: its file ships; nothing to make")
    about = (load.what, f"Source: {load.source}", f"Licence: {load.licence}")
    trace, filled = read_original(originals, load.recipe, about)
    _refuse_to_overwrite(out, force)
    _write(made := out.with_name(f"other-{out.name}"), trace)
    if (digest := read_trace(made).digest()) != load.digest:
        raise WorkloadError(
            f"{name}: {len(trace.rate)} bins with digest {digest[:12]}, not the {load.bins} bins with "
            f"{load.digest[:12]} of the index; are these the files of {load.source}? What was made is in {made}"
        )
    made.replace(out)
    click.echo(f"{out}: {len(trace.rate)} bins of {trace.width_s:g} s, {filled} filled, the series of the index")


@click.command()
@click.argument("originals", type=_FILE, nargs=-1, required=True)
@click.argument("out", type=_FILE)
@click.option(
    "--reader",
    type=click.Choice(["access-log", "events", "bins", "counts"]),
    required=True,
    help="access-log: common or combined log format. events: a CSV row for each request. bins: a CSV row for each bin. "
    "counts: numbers and white space.",
)
@click.option("--width", "width_s", default=1.0, show_default=True, help="Width of a bin in seconds.")
@click.option("--join", default=1, show_default=True, help="How many bins become one of the trace.")
@click.option("--time", default="{timestamp}", show_default=True, help="The time, such as '{date}T{hour:0>2}:00'.")
@click.option("--value", default="value", show_default=True, help="Column with the count, for bins.")
@click.option("--columns", help="Names of the columns with commas, for a file that does not name them.")
@click.option("--delimiter", default=",", show_default=True)
@click.option("--unit", type=click.Choice(["count", "rate"]), default="count", show_default=True)
@click.option("--begin", help="Leave out what lies before this time.")
@click.option("--end", help="Leave out what lies after this time.")
@click.option("--holes", type=click.Choice(["refuse", "line"]), default="refuse", show_default=True)
@click.option("--longest-hole", "longest_hole_s", default=3600.0, show_default=True, help="In seconds.")
@click.option("--silence", "silence_s", type=float, help="So many seconds without a request are a hole.")
@click.option("--repeats", type=click.Choice(["refuse", "mean", "sum"]), default="refuse", show_default=True)
@click.option("--source", help="A line for the file: where the load comes from.")
@click.option("--force", is_flag=True, help="Overwrite OUT.")
def count(
    originals: tuple[Path, ...], out: Path, source: str | None, force: bool, columns: str | None, **options: Any
) -> None:
    """Make the trace OUT of access logs, lists of requests or tables of counts of your own (ORIGINALS, also gzip)."""
    from pydantic import ValidationError

    from rlscaler_rl.workloads.originals import Recipe, read_original

    _refuse_to_overwrite(out, force)
    try:
        recipe = Recipe(columns=tuple(columns.split(",")) if columns else (), **options)
    except ValidationError as error:
        said = "; ".join(f"{_flag(str(one['loc'][0]))}: {one['msg']}" for one in error.errors())
        raise click.UsageError(said) from error
    comments = (f"Source: {source}",) if source else ()
    trace, filled = read_original(originals, recipe, comments)
    _write(out, trace)
    click.echo(f"{out}: {len(trace.rate)} bins of {trace.width_s:g} s, {filled} filled, mean {trace.rate.mean():.4g}/s")


def _flag(name: str) -> str:
    """The option that sets a field of the recipe."""
    return next(one.opts[0] for one in count.params if one.name == name)


def _compared(names: list[str], folder: Path | None) -> list[tuple[str, ...]]:
    from rlscaler_rl.workloads.day_facts import WITHIN, drawing
    from rlscaler_rl.workloads.day_splits import before_test_s
    from rlscaler_rl.workloads.days import day_load, day_trace

    rows: list[tuple[str, ...]] = [("load", "seconds", *(f"D {scale} s" for scale in WITHIN), "jumps within 10 s")]
    for name in names:
        found = drawing(day_trace(name, folder), name, before_test_s(day_load(name)))
        for i, kind in enumerate(("recorded", "drawn")):
            rows.append((name, kind, *(f"{one[i]:.3g}" for one in found.within.values()), str(found.jumps_10s[i])))
    return rows


def _refuse_to_overwrite(out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise click.UsageError(f"{out}: exists; name another file or add --force")


def _write(out: Path, trace: Trace) -> None:
    from rlscaler_loadgen.traces import write_trace

    try:
        write_trace(out, trace)
    except OSError as error:
        raise WorkloadError(f"{out}: {error.strerror}; name a file that can be written") from error


def _table(rows: list[tuple[str, ...]], markdown: bool) -> None:
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        click.echo("\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]))
        return
    from rich.console import Console
    from rich.table import Table

    shown = Table(box=None, pad_edge=False)
    for column in rows[0]:
        shown.add_column(column, overflow="fold")
    for row in rows[1:]:
        shown.add_row(*row)
    console = Console(width=max(Console().width, 150), highlight=False)
    console.print(shown)
