"""Commands of `rlscaler trace`: recorded loads, files of one's own, the library of days.

Heavy imports wait until a command runs.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import FILE, FOLDER, PRESENT_FOLDER, fresh, output_option, writable
from rlscaler_rl.workloads.names import PATTERNS, TRACES, Part, WorkloadError
from rlscaler_rl.workloads.recording import read_load

if TYPE_CHECKING:
    from rlscaler_loadgen.traces import Trace
    from rlscaler_rl.workloads.facts import TraceFacts

_DAYS = click.option(
    "--days",
    "folder",
    type=FOLDER,
    help="Folder of the files that do not ship; $RLSCALER_DAYS or ~/.local/share/rlscaler/days by default.",
)
_FOLDER_OF_TRACES = click.option(
    "--traces", type=PRESENT_FOLDER, help="Folder with the full traces; the samples that ship by default."
)


OF_PROMETHEUS = (
    click.Option(
        ["--query"],
        metavar="PROMQL",
        help="With --prometheus: one series in requests/s, such as sum(rate(http_requests_total[1m])).",
    ),
    click.Option(
        ["--from", "begin"],
        default="now-7d",
        show_default=True,
        help="With --prometheus: first moment, ISO 8601, Unix seconds, now or now-7d.",
    ),
    click.Option(["--to", "end"], default="now", show_default=True, help="With --prometheus: last moment, the same."),
    click.Option(
        ["--step"],
        default="15s",
        show_default=True,
        help="With --prometheus: width of a bin, such as 60 or 1m.",
    ),
    click.Option(["--bearer-token-file"], type=FILE, help="With --prometheus: file with the token that it asks for."),
)
"""Options that say which history of a Prometheus is a load."""

FILL = click.Option(
    ["--fill"], type=click.Choice(["hold", "zero"]), help="Replace missing samples by the last rate or by 0."
)


@click.group()
def trace() -> None:
    """Recorded loads: list, import from a CSV file, a log or Prometheus, cut into parts, plot; the library of days."""


@trace.command(name="list")
@click.argument("files", type=FILE, nargs=-1)
@_FOLDER_OF_TRACES
@output_option
def list_(files: tuple[Path, ...], traces: Path | None, output: str) -> None:
    """List the recorded workloads, or FILES of your own, with length, rates, parts and digest."""
    from rlscaler_rl.workloads import facts

    listed = [facts.own(read_load(path), _stem(path)) for path in files] if files else facts.named(traces)
    if output == "json":
        click.echo(json.dumps([asdict(facts_of_load) for facts_of_load in listed], indent=1))
    else:
        _print(listed)


@trace.command(name="import")
@click.argument("paths", type=FILE, nargs=-1, required=True, metavar="[FILE] [OUT.csv]")
@click.option("--prometheus", "url", help="Address of a Prometheus; then only OUT.csv is named.")
@click.option("--series", help="Name of one series of a FILE that holds several.")
@click.option("--force", is_flag=True, help="Overwrite OUT.csv.")
def import_(
    paths: tuple[Path, ...], url: str | None, force: bool, series: str | None, fill: Any, **options: Any
) -> None:
    """Check a load in FILE (and write it to OUT.csv), or make OUT.csv of a service's history in Prometheus.

    FILE is a CSV export (Grafana, Excel, Locust) or JSON of Prometheus or Grafana. OUT.csv has the columns
    time_s,requests_per_s in bins of one width; an OUT that ends with .gz is compressed.
    """
    if len(paths) > (2 if url is None else 1):
        raise click.UsageError("name FILE and perhaps OUT.csv; with --prometheus only OUT.csv")
    if url is None:
        refuse_of_prometheus()
    elif series is not None:
        raise click.UsageError("--series: only for a FILE; --query names the series of Prometheus")
    out = paths[-1] if url is not None or len(paths) == 2 else None
    if out is not None:
        fresh(out, force)
    loaded = read_load(paths[0], series, fill) if url is None else asked(url, fill=fill, **options)
    if out is not None:
        _write(out, loaded)
    from rlscaler_rl.workloads.facts import own

    _print([own(loaded, _stem(out or paths[0]))])


import_.params += [*OF_PROMETHEUS, FILL]


def refuse_of_prometheus() -> None:
    """Raise UsageError for options of a Prometheus query where no Prometheus is named."""
    source, default = click.get_current_context().get_parameter_source, click.core.ParameterSource.DEFAULT
    if given := [option.opts[0] for option in OF_PROMETHEUS if source(option.name or "") is not default]:
        raise click.UsageError(f"{', '.join(given)}: only with --prometheus")


@trace.command()
@click.argument("file", type=FILE)
@click.option("--out", type=FOLDER, callback=writable, help="Folder; that of FILE by default.")
def split(file: Path, out: Path | None) -> None:
    """Cut FILE by time: 60 % train, 15 % tune, 25 % test, each a trace, and FILE.split.json with their digests."""
    from rlscaler_rl.workloads.recording import split_file

    for path in split_file(read_load(file), _stem(file), out or file.parent):
        click.echo(path)


@trace.command()
@_FOLDER_OF_TRACES
@click.option("--out", type=FILE, callback=writable, default=Path("workloads.png"), show_default=True)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
def plot(traces: Path | None, out: Path, seed: int) -> None:
    """Draw the first test episode of every workload."""
    _draw(out, traces, seed)
    click.echo(out)


@trace.command()
@click.argument("names", nargs=-1)
@_DAYS
@click.option("--markdown", is_flag=True, help="A table for a page.")
@output_option
def days(names: tuple[str, ...], folder: Path | None, markdown: bool, output: str) -> None:
    """List the loads of whole days (or those of NAMES), their origin, and whether their files are on this machine."""
    from rlscaler_rl.results.document import print_table
    from rlscaler_rl.results.table import Table
    from rlscaler_rl.workloads.days import day_load, day_loads, there

    loads = {name: day_load(name) for name in names or day_loads()}
    here = [name for name in there(folder) if name in loads]
    if output == "json":
        listed = [
            {"name": name, "days": load.days, "there": name in here} | load.model_dump(mode="json", exclude={"recipe"})
            for name, load in loads.items()
        ]
        click.echo(json.dumps(listed, indent=1))
        return
    header = ("load", "what", "days", "bin (s)", "seconds", "group", "licence", "file")
    rows = [
        (
            name, load.what, str(load.days), f"{load.width_s:g}", load.seconds.value, load.group, load.licence,
            "ships" if load.ships else "there" if name in here else "to be made",
        )
        for name, load in loads.items()
    ]  # fmt: skip
    table = Table(header, rows, text_columns=len(header))
    if markdown:
        click.echo("\n".join(table.markdown()))
        return
    summary = f"{sum(load.days for load in loads.values())} whole days of {len(loads)} loads, {len(here)} there"
    print_table(table, [summary], width=150)


@trace.command()
@click.argument("name")
@click.argument("originals", type=FILE, nargs=-1, required=True)
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
    fresh(out, force)
    _write(written := out.with_name(f"other-{out.name}"), trace)
    if (digest := read_trace(written).digest()) != load.digest:
        raise WorkloadError(
            f"{name}: {len(trace.rate)} bins with digest {digest[:12]}, not the {load.bins} bins with "
            f"{load.digest[:12]} of the index; are these the files of {load.source}? What was made is in {written}"
        )
    written.replace(out)
    click.echo(f"{out}: {len(trace.rate)} bins of {trace.width_s:g} s, {filled} filled, the series of the index")


@trace.command()
@click.argument("originals", type=FILE, nargs=-1, required=True)
@click.argument("out", type=FILE)
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

    fresh(out, force)
    try:
        recipe = Recipe(columns=tuple(columns.split(",")) if columns else (), **options)
    except ValidationError as error:
        problems = "; ".join(f"{_flag(str(problem['loc'][0]))}: {problem['msg']}" for problem in error.errors())
        raise click.UsageError(problems) from error
    comments = (f"Source: {source}",) if source else ()
    trace, filled = read_original(originals, recipe, comments)
    _write(out, trace)
    click.echo(f"{out}: {len(trace.rate)} bins of {trace.width_s:g} s, {filled} filled, mean {trace.rate.mean():.4g}/s")


def _flag(name: str) -> str:
    """The option that sets a field of the recipe."""
    return next(option.opts[0] for option in count.params if option.name == name)


def asked(
    url: str, query: str | None, begin: str, end: str, step: str, bearer_token_file: Path | None, fill: str | None
) -> Trace:
    """Return the load that the options of a Prometheus query name. Raises UsageError, WorkloadError."""
    from rlscaler_rl.workloads.history import TimeRange, parse_duration, parse_time, read_history, read_token

    if not query:
        raise click.UsageError("--query: is needed, such as 'sum(rate(http_requests_total[1m]))'")
    now = datetime.now(UTC)
    span = TimeRange.between(parse_time(begin, now), parse_time(end, now), parse_duration(step))
    token = read_token(bearer_token_file) if bearer_token_file else None
    return read_history(url, query, span, token=token, fill=fill)


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".csv")


def _print(listed: list[TraceFacts]) -> None:
    from rlscaler_rl.results.document import print_table
    from rlscaler_rl.results.table import Table

    header = ("name", "bins", "length", "p50", "p99", "peak", "dispersion", "train/tune/test", "blocks", "digest")
    rows = []
    for facts in listed:
        rates = (f"{value:.4g}" for value in (facts.p50, facts.p99, facts.peak, facts.dispersion))
        parts = "/".join(_length(seconds) if seconds else "-" for seconds in facts.parts.values())
        blocks = "/".join(str(count) if facts.parts[part] else "-" for part, count in facts.blocks.items())
        size = f"{facts.bins} x {facts.width_s:g} s"
        rows.append((facts.name, size, _length(facts.length_s), *rates, parts, blocks, facts.digest[:12]))
    notes = [f"{facts.name}: {facts.what}; {facts.source}; {facts.licence}" for facts in listed]
    legend = (
        "p50, p99, peak: requests/s as recorded. dispersion: variance over mean of the requests in 10 s. "
        "blocks: of 10 minutes. digest: SHA-256 of the whole series."
    )
    print_table(Table(header, rows), ["", *notes, legend], width=130)


def _length(seconds: float) -> str:
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:g} s"


_SMOOTHED_SECONDS = 10
"""Seconds over which the drawn rate is averaged."""


def _draw(out: Path, traces: Path | None, seed: int) -> None:
    """Draw the first episode of the first run of every pattern and trace: never a chosen one."""
    import numpy as np

    from rlscaler_rl.results import figures
    from rlscaler_rl.workloads.draw import episodes

    names, picture = (*PATTERNS, *TRACES), figures.figure(12, 7)
    with figures.styled():
        grid = picture.subplots(3, 3, sharex=True, sharey=True)
    for axis, name in zip(grid.flat, names, strict=True):
        drawn = episodes(name, Part.TEST, runs=1, episodes=1, seed=seed, traces=traces)
        seconds = np.arange(drawn.rate.shape[1]) / 60
        window = np.ones(_SMOOTHED_SECONDS)
        counted = np.convolve(np.ones(len(seconds)), window, mode="same")
        smooth = np.convolve(drawn.rate[0], window, mode="same") / counted
        axis.plot(seconds, drawn.arrivals[0], color="0.75", linewidth=0.5, label="arrivals in each second")
        axis.plot(seconds, smooth, color="C0", linewidth=1.5, label=f"rate, mean of {_SMOOTHED_SECONDS} s")
        axis.axhline(100, color="C3", linewidth=0.8, linestyle=":", label="planned peak")
        axis.set_title(name, fontsize=10)
        axis.set_ylim(0, 200)
    for axis in grid[:, 0]:
        axis.set_ylabel("requests/s")
    for axis in grid[-1]:
        axis.set_xlabel("minutes")
    picture.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    figures.save(picture, out)


def _write(out: Path, trace: Trace) -> None:
    from rlscaler_loadgen.traces import write_trace

    try:
        write_trace(out, trace)
    except OSError as error:
        raise WorkloadError(f"{out}: {error.strerror}; name a file that can be written") from error
