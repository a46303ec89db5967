"""`rlscaler days`. Heavy imports wait until the command runs, so that --help is quick."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.options import FOLDER, PRESENT_FILE, names_in, output_option, writable

if TYPE_CHECKING:
    from rlscaler_rl.evaluation.days.compare import Request
    from rlscaler_rl.evaluation.days.contenders import Policy
    from rlscaler_rl.evaluation.days.service_load import ServiceLoad
    from rlscaler_rl.evaluation.days.setting import World


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
    type=PRESENT_FILE,
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
@click.option(
    "--world",
    type=click.Choice(["uncertain", "exact"]),
    default="uncertain",
    show_default=True,
    help="uncertain: declared capacity wrong and drifting, starts priced, scrape 15 s, both pools and GPU alone; "
    "exact: all as declared, scrape 2 s, both pools.",
)
@click.option("--errors", help="True capacity against the declared one in %, by commas.  [default: -40,-20,-10,0,20]")
@click.option(
    "--pools", type=click.Choice(["both", "gpu"]), help="Both pools or GPU alone.  [default: one after the other]"
)
@click.option(
    "--fall",
    type=click.FloatRange(0, 99),
    help="Percent of the capacity that is lost in the middle of each day, as by a new version of a model.",
)
@click.option("--level", type=click.Choice(["fluid", "request"]), default="fluid", show_default=True)
@click.option(
    "--trials",
    default=60,
    show_default=True,
    type=click.IntRange(1),
    help="Settings that the search tries for each tuned contender.",
)
@click.option("--coverage", is_flag=True, help="Also print how often the forecaster's quantiles held on each load.")
@click.option("--picture", help="Load whose last day is drawn.")
@click.option("--folder", type=FOLDER, help="Folder of the files that do not ship; see `rlscaler trace days`.")
@click.option("--out", type=FOLDER, callback=writable, default=Path("results/days"), show_default=True)
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
    world: str,
    errors: str | None,
    pools: str | None,
    fall: float | None,
    **options: Any,
) -> None:
    """Play whole days of real loads with the policies and the autoscalers that users have; losses first.

    The folder --out gets days.json, days.md and for each network of --model its model card, and in the uncertain world
    errors.json, errors.md and errors.png: every contender at every error of the declared capacity, and the lead of the
    first --model, or else of the forecast rule.
    """
    from rlscaler_rl.workloads.days import NOMINAL_SHARE

    share = NOMINAL_SHARE if share is None else share
    if history is not None and loads is not None:
        raise click.UsageError("--history: plays that load alone; leave out --loads")
    if series is not None and history is None:
        raise click.UsageError("--series: only with --history")
    options["world"] = _world(world, errors, pools, fall)
    own_past = kind == "own"
    chosen = _loads(loads, share, folder, own_past) if history is None else [_recorded(history, series, share)]
    policies = _policies(model)
    if picture is not None and picture not in (names := [load.name for load in chosen]):
        raise click.UsageError(f"--picture {picture}: is not among the loads {', '.join(names)}")
    # Below the checks of the arguments, since these modules import libraries that take seconds to load.
    from rlscaler_rl.evaluation.days import by_error
    from rlscaler_rl.evaluation.days.compare import Request, compare
    from rlscaler_rl.evaluation.days.model_card import model_card
    from rlscaler_rl.evaluation.days.past import TUNABLE
    from rlscaler_rl.evaluation.days.table import report
    from rlscaler_rl.results.document import progress, show, write

    options["tuned"] = tuple(TUNABLE) if kind == "own" else ()
    options["service"] = {} if interval is None else {"interval_seconds": float(interval)}
    request = Request(kind, chosen, policies, share=share, **options)  # type: ignore[arg-type]
    with progress(output) as tell:
        table = compare(request, tell)
    lines = report(table, coverage=coverage)
    if not request.world.exact:
        errors_table = by_error.by_error(table, policies[0].name if policies else "rule")
        shown = [
            line for part in by_error.tables(errors_table) for line in (f"### {part.title}", "", *part.markdown(), "")
        ]
        lines = [*shown, *lines]
        write(errors_table, shown, out, "errors")
        by_error.draw(errors_table, out / "errors.png")
    write(table, lines, out, "days")
    for policy in policies:
        if policy.name in table.networks:
            card = "\n".join(model_card(table, policy.name, policy.load().manifest))
            (out / f"model-card-{policy.name}.md").write_text(card + "\n", encoding="utf-8")
    if picture:
        _draw(request, picture, out)
    show(table, [*lines, f"{table.seconds:.0f} s, {table.peak_mib} MiB", f"{out}/"], output)


def _world(name: str, errors: str | None, pools: str | None, fall: float | None) -> World:
    """Return the named world with the errors, the pools and the fall of the command line."""
    from rlscaler_rl.evaluation.days.setting import WORLDS

    changes: dict[str, Any] = {} if pools is None else {"pools": (pools,)}
    if errors is not None:
        try:
            changes["errors"] = tuple(float(value) / 100 for value in errors.split(","))
        except ValueError as error:
            raise click.BadParameter(f"{errors}: percents by commas, such as -20,0", param_hint="--errors") from error
        if not all(-0.9 <= value <= 9 for value in changes["errors"]):
            raise click.BadParameter(f"{errors}: -90 to 900 %", param_hint="--errors")
    if fall is not None:
        changes["fall"] = fall / 100
    if changes and name == "exact":
        raise click.UsageError("--errors, --pools, --fall: only with --world uncertain")
    return replace(WORLDS[name], **changes)


def _loads(loads: str | None, share: float, folder: Path | None, own_past: bool) -> list[ServiceLoad]:
    """Return the named loads, else those of the library whose file is there and has enough days to be judged.

    `share` is the part of the nominal service's capacity that they need in their busy hours. Hours without a past are
    left out where contenders are tuned on their `own_past`.
    """
    from rlscaler_rl.workloads.days import LEAST_DAYS, day_load, there
    from rlscaler_rl.workloads.library import wholes

    if loads is None:
        names = [name for name in there(folder) if day_load(name).days >= LEAST_DAYS]
        names += [] if own_past else wholes()
    else:
        names = list(names_in("--loads", loads))
    return [_load(name, _capacity(), share, folder) for name in names]


def _capacity() -> float:
    """Return the requests/s of all replicas of the nominal service."""
    from rlscaler_rl.simulation.scenario import NOMINAL

    return float(sum(rps * most for rps, most in zip(NOMINAL["rps"], NOMINAL["max_replicas"], strict=True)))


def _recorded(history: Path, series: str | None, share: float) -> ServiceLoad:
    """Read a load of one's own, scaled so that its busy hours need `share` of the nominal service's capacity."""
    from rlscaler_rl.evaluation.days.service_load import own
    from rlscaler_rl.evaluation.service_tuning.history import check_counter
    from rlscaler_rl.workloads.recording import read_load

    trace = read_load(history, series)
    check_counter(trace, str(history))
    return own(trace, history.name.split(".")[0], factor=share * _capacity() / trace.percentile(99))


def _load(name: str, capacity_rps: float, share: float, folder: Path | None) -> ServiceLoad:
    from rlscaler_rl.evaluation.days.drawn import drawn_load
    from rlscaler_rl.evaluation.days.service_load import from_library, stretch

    known = drawn_load(name, share * capacity_rps) or stretch(name, capacity_rps, share)
    return known or from_library(name, capacity_rps, share, folder)


def _policies(chosen: tuple[str, ...]) -> list[Policy]:
    """Return the networks that `--model` names."""
    from rlscaler_rl.evaluation import models
    from rlscaler_rl.evaluation.days.contenders import Policy

    loaded = models.load_all(chosen, Path("rl")) if chosen else []
    return [
        Policy(f"network_{number}", model.name, partial(models.actor_again, model.source, model.digest))
        for number, model in enumerate(loaded, 1)
    ]


def _draw(request: Request, name: str, out: Path) -> None:
    """Draw the last day of a load."""
    from rlscaler_rl.evaluation.days import contenders
    from rlscaler_rl.evaluation.days.picture import draw_day
    from rlscaler_rl.evaluation.days.play import played
    from rlscaler_rl.evaluation.days.world import prepared_in
    from rlscaler_rl.simulation.batch import SENSE_SECONDS
    from rlscaler_rl.workloads import Part

    load = next(load for load in request.loads if load.name == name)
    # The picture shows the row that is nearest to the declared numbers.
    world = replace(request.world, errors=(min(request.world.errors, key=abs),), pools=request.world.pools[:1])
    world = replace(world, scrapes=world.scrapes[:1])
    day = prepared_in(world, [(load, load.parts[Part.TEST][-1])], **request.service)
    shown = [entry for entry in contenders.untuned(request.policies) if entry.name not in ("keda", "kpa")]
    title = f"{name}, day {day.numbers[0] + 1}: requests/s, and the capacity that stood ready for them"
    runs = [(entry, played(day, entry.make, timeline=SENSE_SECONDS)) for entry in shown]
    draw_day(title, runs, out / f"day-{name}.png")
