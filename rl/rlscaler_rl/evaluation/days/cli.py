"""`rlscaler days`. Heavy imports wait until it runs and what it is given is in order."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import names_in, output_option, writable

if TYPE_CHECKING:
    from rlscaler_rl.evaluation.days.compare import Progress, Request
    from rlscaler_rl.evaluation.days.contenders import Policy
    from rlscaler_rl.evaluation.days.service_load import ServiceLoad
    from rlscaler_rl.evaluation.days.table import DayTable

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.option(
    "--kind",
    type=click.Choice(["transfer", "own"]),
    default="transfer",
    show_default=True,
    help="transfer: all contenders at their defaults; own: some also tuned on each load's past.",
)
@click.option(
    "--loads",
    help="Names by commas: of the library of days (default: all that are there), or jobs_N, random_N, steady_RPS.",
)
@click.option(
    "--history",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Recorded load in place of --loads: CSV or JSON of Grafana or Prometheus, at least two hours.",
)
@click.option("--series", help="Name of one series of a --history that holds several.")
@click.option(
    "--days",
    "days",
    default=4,
    show_default=True,
    type=click.IntRange(1),
    help="Most days of each load's test part, the last ones.",
)
@click.option("--hours", type=click.IntRange(1, 24), help="Play the first hours of each day alone.")
@click.option("--model", multiple=True, help="Training folder, .onnx, .zip or `bundled`; --model again for others.")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    help="Part of all replicas' capacity that a load's busy hours need, 0 to 1.",
)
@click.option(
    "--interval",
    type=click.Choice(["10", "15", "20", "30", "60"]),
    help="Seconds between two actions of a policy.  [default: as where a policy leaves it out]",
)
@click.option("--level", type=click.Choice(["fluid", "request"]), default="fluid", show_default=True)
@click.option(
    "--trials",
    default=60,
    show_default=True,
    type=click.IntRange(1),
    help="Settings that are tried of each contender that is tuned.",
)
@click.option("--coverage", is_flag=True, help="Also print how often the forecaster's quantiles held on each load.")
@click.option("--picture", help="Load whose last day is drawn.")
@click.option("--folder", type=_FOLDER, help="Folder of the files that do not ship; see `rlscaler trace days`.")
@click.option("--out", type=_FOLDER, callback=writable, default=Path("results/days"), show_default=True)
@output_option
def days(
    kind: str,
    loads: str | None,
    history: Path | None,
    series: str | None,
    model: tuple[str, ...],
    share: float | None,
    coverage: bool,
    interval: str | None,
    picture: str | None,
    folder: Path | None,
    out: Path,
    output: str,
    **options: Any,
) -> None:
    """Play whole days of real loads with the policies and the autoscalers that users have; losses first.

    The folder --out gets days.json, days.md and for each network of --model its model card.
    """
    from rich.console import Console

    from rlscaler_rl.evaluation.days.telling import tell
    from rlscaler_rl.workloads.days import NOMINAL_SHARE

    share = NOMINAL_SHARE if share is None else share
    if history is not None and loads is not None:
        raise click.UsageError("--history: plays that load alone; leave out --loads")
    if series is not None and history is None:
        raise click.UsageError("--series: only with --history")
    chosen = chosen_loads(loads, share, folder) if history is None else [_recorded(history, series, share)]
    policies = _policies(model)
    if picture is not None and picture not in (played := [load.name for load in chosen]):
        raise click.UsageError(f"--picture {picture}: is not among the loads {', '.join(played)}")
    service = {} if interval is None else {"interval_seconds": float(interval)}
    request = _request(kind, chosen, policies, share, options | {"service": service})
    console = Console(highlight=False, stderr=output == "json")
    with console.status("") as status:

        def progress(text: str) -> None:
            tell(console, status, text)

        found, lines = _compared(request, coverage, out, progress)
    if picture:
        _draw(request, picture, out)
    _show(found, lines, out, output)


def _show(table: DayTable, lines: list[str], out: Path, output: str) -> None:
    """Print the table as the report or as JSON."""
    from rich.console import Console

    if output == "json":
        click.echo(table.model_dump_json(indent=1))
        return
    console = Console(highlight=False)
    console.print("\n".join(lines), soft_wrap=True)
    console.print(f"{table.seconds:.0f} s, {table.peak_mib} MiB", style="dim")
    console.print(f"{out}/", style="bold")


def chosen_loads(loads: str | None, share: float | None = None, folder: Path | None = None) -> list[ServiceLoad]:
    """Give the loads that are named, else those of the library that are there and have enough days to be judged.

    `share` is the part of the nominal service's capacity that they need in their busy hours.
    """
    from rlscaler_rl.workloads.days import NOMINAL_SHARE, there

    share = NOMINAL_SHARE if share is None else share
    capacity = _capacity()
    names = [name for name in there(folder) if _long(name)] if loads is None else names_in("--loads", loads)
    return [_load(name, capacity, share, folder) for name in names]


def _capacity() -> float:
    """Requests/s of all replicas of the nominal service."""
    from rlscaler_rl.simulation.scenario import NOMINAL

    return float(sum(rps * most for rps, most in zip(NOMINAL["rps"], NOMINAL["max_replicas"], strict=True)))


def _recorded(history: Path, series: str | None, share: float) -> ServiceLoad:
    """Read a load of one's own, scaled so that its busy hours need `share` of the nominal service's capacity."""
    from rlscaler_rl.evaluation.days.service_load import own
    from rlscaler_rl.evaluation.service_tuning.history import check_counter, read_history

    trace = read_history(history, series)
    check_counter(trace, str(history))
    return own(trace, history.name.split(".")[0], factor=share * _capacity() / trace.percentile(99))


def _policies(chosen: tuple[str, ...]) -> list[Policy]:
    """The networks that `--model` names."""
    from rlscaler_rl.evaluation import models
    from rlscaler_rl.evaluation.days.contenders import Policy

    loaded = models.load_all(chosen, Path("rl")) if chosen else []
    return [
        Policy(f"network_{number}", one.name, partial(models.actor_again, one.source, one.digest))
        for number, one in enumerate(loaded, 1)
    ]


def _request(
    kind: Any, loads: list[ServiceLoad], policies: list[Policy], share: float, options: dict[str, Any]
) -> Request:
    from rlscaler_rl.evaluation.days.compare import Request
    from rlscaler_rl.evaluation.days.past import TUNABLE

    tuned = tuple(TUNABLE) if kind == "own" else ()
    return Request(kind=kind, loads=loads, policies=policies, tuned=tuned, share=share, **options)


def _compared(request: Request, coverage: bool, out: Path, tell: Progress) -> tuple[DayTable, list[str]]:
    """Play and write the comparison: the table, and the lines of the report."""
    from rlscaler_rl.evaluation.days import compare as comparison
    from rlscaler_rl.evaluation.days.card import card
    from rlscaler_rl.evaluation.days.report import load_markdown
    from rlscaler_rl.evaluation.days.seeds import seeds_markdown
    from rlscaler_rl.evaluation.days.table import coverage_markdown, markdown

    table = comparison.compare(request, tell)
    lines = [f"## Days of {len(table.loads)} loads, {request.kind}", "", *markdown(table)]
    if together := list(seeds_markdown(table)):
        lines += ["", "### Seeds", "", *together]
    if len(table.loads) == 1:
        lines += ["", *load_markdown(table)]
    if coverage:
        lines += ["", *coverage_markdown(table)]
    comparison.write(table, out, lines)
    for policy in request.policies:
        if policy.name in table.networks:
            text = card(table, policy.name, policy.load().manifest)
            (out / f"model-card-{policy.name}.md").write_text(text, encoding="utf-8")
    return table, lines


def _load(name: str, capacity_rps: float, share: float, folder: Path | None) -> ServiceLoad:
    from rlscaler_rl.evaluation.days.drawn import drawn_load
    from rlscaler_rl.evaluation.days.service_load import from_library

    return drawn_load(name, share * capacity_rps) or from_library(name, capacity_rps, share, folder)


def _long(name: str) -> bool:
    """Has a load of the library enough days to be judged?"""
    from rlscaler_rl.workloads.days import LEAST_DAYS, day_load

    return day_load(name).days >= LEAST_DAYS


def _draw(request: Request, name: str, out: Path) -> None:
    from rlscaler_rl.evaluation.days import contenders
    from rlscaler_rl.evaluation.days.picture import draw_day
    from rlscaler_rl.evaluation.days.play import played, prepared
    from rlscaler_rl.simulation.batch import SENSE_SECONDS
    from rlscaler_rl.workloads import Part

    load = next(load for load in request.loads if load.name == name)
    one = prepared([(load, load.parts[Part.TEST][-1])], **request.service)
    shown = [entry for entry in contenders.untuned(request.policies) if entry.name not in ("keda", "kpa")]
    title = f"{name}, day {one.numbers[0] + 1}: requests/s, and what stood ready for them"
    runs = [(entry, played(one, entry.make, timeline=SENSE_SECONDS)) for entry in shown]
    draw_day(one, title, runs, out / f"day-{name}.png")
