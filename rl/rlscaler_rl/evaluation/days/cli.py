"""`rlscaler days`, `rlscaler estimate` and `rlscaler simulate`. Heavy imports wait until one runs."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_rl.workloads.day_cli import output_option

if TYPE_CHECKING:
    from rlscaler_rl.evaluation.days.compare import Request
    from rlscaler_rl.evaluation.days.report import Report
    from rlscaler_rl.evaluation.days.service_load import ServiceLoad
    from rlscaler_rl.evaluation.days.table import DayTable

MISSED = 3
"""Exit code: it is done, and the answer is no."""

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command()
@click.option(
    "--kind",
    type=click.Choice(["transfer", "own", "shift"]),
    default="transfer",
    show_default=True,
    help="transfer: all contenders at their defaults; own: some also tuned on each load's past; shift: other services.",
)
@click.option(
    "--loads",
    help="Names by commas: of the library of days (default: all that are there), or jobs_N, random_N, steady_RPS.",
)
@click.option("--days", "days", default=4, show_default=True, help="Most days of each load's test part, the last ones.")
@click.option("--hours", type=click.IntRange(1, 24), help="Play the first hours of each day alone.")
@click.option("--model", multiple=True, help="Training folder, .onnx, .zip or `bundled`; --model again for others.")
@click.option("--share", type=float, help="Part of all replicas' capacity that a load's busy hours need, 0 to 1.")
@click.option("--level", type=click.Choice(["fluid", "request"]), default="fluid", show_default=True)
@click.option(
    "--trials", default=60, show_default=True, help="Settings that are tried of each contender that is tuned."
)
@click.option("--plan/--no-plan", default=False, help="Also plan with perfect foresight (two minutes a day).")
@click.option(
    "--causal-plan/--no-causal-plan",
    "causal_plan",
    default=False,
    help="Also plan with futures drawn from the past alone (some minutes a day), and say the regret of all.",
)
@click.option(
    "--equal-lateness/--no-equal-lateness",
    "lateness",
    default=False,
    help="Also compare the GPU-hours that each contender needs for at most 1 % and 0.1 % late.",
)
@click.option("--coverage", is_flag=True, help="Also print how often the forecaster's quantiles held on each load.")
@click.option("--picture", help="Load whose last day is drawn.")
@click.option("--folder", type=_FOLDER, help="Folder of the files that do not ship; see `rlscaler trace days`.")
@click.option("--out", type=_FOLDER, default=Path("results/days"), show_default=True)
def days(
    kind: str,
    loads: str | None,
    days: int,
    hours: int | None,
    model: tuple[str, ...],
    share: float | None,
    level: str,
    trials: int,
    plan: bool,
    causal_plan: bool,
    lateness: bool,
    coverage: bool,
    picture: str | None,
    folder: Path | None,
    out: Path,
) -> None:
    """Play whole days of real loads with the policies and the autoscalers that users have; losses first."""
    from rich.console import Console

    from rlscaler_rl.evaluation.days import compare as comparison
    from rlscaler_rl.evaluation.days.lateness import lateness_markdown
    from rlscaler_rl.evaluation.days.regret import regret_markdown
    from rlscaler_rl.evaluation.days.table import coverage_markdown, markdown
    from rlscaler_rl.workloads.day_splits import NOMINAL_SHARE

    if kind == "shift" and (plan or causal_plan or lateness or hours):
        raise click.UsageError(
            "--kind shift: whole days, and nothing is planned or tuned on other services; leave out --hours, --plan, "
            "--causal-plan and --equal-lateness"
        )
    console = Console(highlight=False)
    share = NOMINAL_SHARE if share is None else share
    request = _request(kind, loads, days, hours, model, share, level, trials, plan, causal_plan, lateness, folder)
    with console.status("") as status:
        if kind == "shift":
            table, lines = _shifted(request, folder, out, lambda text: _tell(console, status, text))
        else:
            table = comparison.compare(request, lambda text: _tell(console, status, text))
            lines = [f"## Days of {len(table.loads)} loads, {kind}", "", *markdown(table)]
            if plan or causal_plan:
                lines += ["", "### Regret", "", *regret_markdown(table)]
            if coverage:
                lines += ["", *coverage_markdown(table)]
            if table.lateness:
                lines += ["", "### At equal lateness", "", *lateness_markdown(table.lateness)]
            comparison.write(table, out, lines)
    console.print("\n".join(lines), soft_wrap=True)
    console.print(f"{table.seconds:.0f} s, {table.peak_mib} MiB", style="dim")
    if picture:
        _draw(request, picture, out)
    console.print(f"{out}/", style="bold")


def _tell(console: Any, status: Any, text: str) -> None:
    if console.is_terminal:
        status.update(text)
    else:
        console.print(text)


def _request(
    kind: Any,
    loads: str | None,
    days: int,
    hours: int | None,
    model: tuple[str, ...],
    share: float,
    level: Any,
    trials: int,
    plan: bool,
    causal_plan: bool,
    lateness: bool,
    folder: Path | None,
) -> Request:
    from rlscaler_rl.evaluation import models
    from rlscaler_rl.evaluation.days.compare import Request
    from rlscaler_rl.evaluation.days.contenders import Policy
    from rlscaler_rl.evaluation.days.past import TUNABLE
    from rlscaler_rl.simulation.scenario import NOMINAL
    from rlscaler_rl.workloads.days import there

    names = [name.strip() for name in loads.split(",")] if loads else there(folder)
    capacity = sum(rps * most for rps, most in zip(NOMINAL["rps"], NOMINAL["max_replicas"], strict=True))
    loaded = models.load_all(model, Path("rl")) if model else []
    return Request(
        kind=kind,
        loads=[_load(name, capacity, share, folder) for name in names if loads or _long(name)],
        policies=[
            Policy(f"network_{number}", one.name, partial(models.actor_again, one.source, one.digest))
            for number, one in enumerate(loaded, 1)
        ],
        days=days,
        hours=hours,
        tuned=tuple(TUNABLE) if kind == "own" else (),
        trials=trials,
        plan=plan,
        causal_plan=causal_plan,
        lateness=lateness,
        level=level,
        share=share,
    )


def _shifted(request: Request, folder: Path | None, out: Path, tell: Any) -> tuple[DayTable, list[str]]:
    """Play and write the comparison of shifts: the table of the last one, and the lines for all."""
    from rlscaler_rl.evaluation.days import compare as comparison
    from rlscaler_rl.evaluation.days.shift import all_shifts, compare_shifts, shift_markdown
    from rlscaler_rl.evaluation.days.table import markdown

    tables = compare_shifts(
        request, lambda name, capacity: _load(name, capacity, request.share, folder), all_shifts(), tell
    )
    for name, table in tables:
        comparison.write(table, out / name.replace(", ", "_").replace(" ", "_"), [f"## {name}", "", *markdown(table)])
    lines = [f"## Days of {len(request.loads)} loads, shift", "", *shift_markdown(tables)]
    (out / "days.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tables[-1][1], lines


def _load(name: str, capacity_rps: float, share: float, folder: Path | None) -> ServiceLoad:
    from rlscaler_rl.evaluation.days.drawn import drawn_load
    from rlscaler_rl.evaluation.days.service_load import from_library

    return drawn_load(name, share * capacity_rps) or from_library(name, capacity_rps, share, folder)


def _long(name: str) -> bool:
    """Has a load of the library enough days to be judged?"""
    from rlscaler_rl.workloads.day_splits import LEAST_DAYS
    from rlscaler_rl.workloads.days import day_load

    return day_load(name).days >= LEAST_DAYS


def _draw(request: Request, name: str, out: Path) -> None:
    from rlscaler_rl.evaluation.days import contenders
    from rlscaler_rl.evaluation.days.picture import draw_day
    from rlscaler_rl.evaluation.days.play import played, prepared
    from rlscaler_rl.simulation.batch import SENSE_SECONDS
    from rlscaler_rl.workloads import Part

    load = next((load for load in request.loads if load.name == name), None)
    if load is None:
        raise click.UsageError(
            f"--picture {name}: is not among the loads {', '.join(one.name for one in request.loads)}"
        )
    one = prepared([(load, load.parts[Part.TEST][-1])], **request.service)
    shown = [entry for entry in contenders.untuned(request.policies) if entry.name not in ("keda", "kpa")]
    title = f"{name}, day {one.numbers[0] + 1}: requests/s, and what stood ready for them"
    runs = [(entry, played(one, entry.make, timeline=SENSE_SECONDS)) for entry in shown]
    draw_day(one, title, runs, out / f"day-{name}.png")


_HISTORY = click.option(
    "--history", type=_FILE, required=True, help="CSV of requests/s, as `rlscaler trace import` writes it."
)
_SCRAPE = click.option(
    "--scrape-seconds", default=15, show_default=True, help="How often Prometheus scrapes the service."
)


@click.command()
@_HISTORY
@click.option("--policy", type=_FILE, help="Manifest of the RLScalingPolicy; without it the README's example service.")
@_SCRAPE
@click.option("--out", type=_FOLDER, default=Path("results/estimate"), show_default=True)
@output_option
def estimate(history: Path, policy: Path | None, scrape_seconds: int, out: Path, output: str) -> None:
    """Say what each autoscaler would have cost on a recorded load: GPU-hours, money and late requests, with a picture.

    Nothing is trained. What is tuned is tuned on the first part of the history; all figures are of the rest.
    """
    from rich.console import Console

    from rlscaler_rl.evaluation.days.estimate import estimated

    console = Console(highlight=False, stderr=output == "json")
    with console.status("") as status:
        found = estimated(history, policy, scrape_seconds, out, lambda text: _tell(console, status, text))
    _show(found, output, [])


@click.command()
@click.argument("policy", type=_FILE)
@_HISTORY
@click.option("--hpa", type=_FILE, help="YAML of the HPAs that scale the targets now; default: an HPA at 80 %.")
@click.option(
    "--model", type=click.Path(path_type=Path, exists=True), help="Network of a policy that names no bundled one."
)
@_SCRAPE
@click.option("--out", type=_FOLDER, default=Path("results/simulate"), show_default=True)
@output_option
def simulate(
    policy: Path, history: Path, hpa: Path | None, model: Path | None, scrape_seconds: int, out: Path, output: str
) -> None:
    """Play the RLScalingPolicy in the file POLICY on a recorded load, as it is written, beside the HPA as it is.

    Says GPU-hours, money, late requests and which guards acted. Nothing is trained or tuned; `rlscaler estimate` asks
    who else would do. Exit code 3: the policy misses its objective on that load.

    \b
    rlscaler simulate chat.yaml --history load.csv
    kubectl get hpa -n workloads -o yaml > hpa.yaml && rlscaler simulate chat.yaml --history load.csv --hpa hpa.yaml
    """
    from rich.console import Console

    from rlscaler_rl.evaluation.days.simulate import simulated

    console = Console(highlight=False, stderr=output == "json")
    with console.status("") as status:
        found = simulated(history, policy, model, hpa, scrape_seconds, out, lambda text: _tell(console, status, text))
    _show(found, output, found.sentences())
    if not found.in_time:
        sys.exit(MISSED)


def _show(found: Report, output: str, sentences: list[str]) -> None:
    from rich.console import Console

    if output == "json":
        click.echo(found.model_dump_json(indent=1))
        return
    console = Console(highlight=False)
    console.print(found.table())
    for line in (*sentences, *found.notes, f"{found.picture} and {found.file} say more; {found.seconds:.0f} s"):
        console.print(line, soft_wrap=True, markup=False)
