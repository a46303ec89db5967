"""`rlscaler ablate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


class Seeds(click.ParamType[list[int]]):
    """`1-5` or `1,3,7`."""

    name = "seeds"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        if isinstance(value, list):
            return value
        try:
            return list(dict.fromkeys(seed for part in value.split(",") for seed in _range(part)))
        except ValueError:
            self.fail(f"{value!r}: write 1-5 or 1,3,7", param, ctx)


def _range(part: str) -> range:
    first, dash, last = part.partition("-")
    found = range(int(first), int(last if dash else first) + 1)
    if not found:
        raise ValueError(f"{part}: no seed is in it")
    return found


class Studies(click.Group):
    """Says in a sentence what went wrong in a training, a search or between machines."""

    def invoke(self, ctx: click.Context) -> Any:
        from rlscaler_rl.evaluation.errors import EvaluationError
        from rlscaler_rl.training.config import ConfigError
        from rlscaler_rl.training.errors import TrainingError

        try:
            return super().invoke(ctx)
        except (ConfigError, TrainingError, EvaluationError) as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Studies)
def ablate() -> None:
    """What each part of the training is worth, measured one change at a time."""


@ablate.command()
@click.argument("ideas", nargs=-1)
@click.option("--seeds", type=Seeds(), default="1-5", show_default=True)
@click.option("--steps", type=click.IntRange(1), default=600_000, show_default=True, help="Of each training.")
@click.option(
    "--workers", type=click.IntRange(1), default=2, show_default=True, help="Trainings side by side, locally."
)
@click.option("--ray", "address", help="Ray cluster, ray://host:10001; local processes by default.")
@click.option("--days", type=click.IntRange(1), default=1, show_default=True, help="Of each load, the last ones.")
@click.option("--loads", help="Names by commas, as of `rlscaler days`; all of the library that are there by default.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("results/ablation"), show_default=True
)
def run(
    ideas: tuple[str, ...],
    seeds: list[int],
    steps: int,
    workers: int,
    address: str | None,
    days: int,
    loads: str | None,
    out: Path,
) -> None:
    """Train IDEAS (all by default) with every seed, and play all networks on days of real load.

    What --out has from an earlier call is not trained again.
    """
    from rlscaler_research.ablation.study import IDEAS, Trainings, markdown, play_all, train_all
    from rlscaler_rl.evaluation.days import compare
    from rlscaler_rl.evaluation.days.cli import chosen_loads

    if unknown := [name for name in ideas if name not in IDEAS]:
        raise click.UsageError(f"{', '.join(unknown)}: no such idea; there are {', '.join(IDEAS)}")
    asked = Trainings(ideas or tuple(IDEAS), seeds, steps, out, workers, address)
    played = chosen_loads(loads)
    train_all(asked, click.echo)
    table, networks = play_all(asked, played, days, click.echo)
    lines = list(markdown(table, networks))
    compare.write(table, out, lines)
    click.echo("\n".join(lines))


@ablate.command()
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=6_000_000, show_default=True)
@click.option(
    "--interval",
    type=click.Choice(["10", "15", "30", "60"]),
    help="Train with this one alone; by default with all, and play 30.",
)
@click.option("--out", type=click.Path(dir_okay=False), help="Write the figures as JSON.")
def optimiser(seed: int, steps: int, interval: str | None, out: str | None) -> None:
    """Train an actor that is given the future and compare it with the hindsight rule."""
    from rlscaler_research.ablation.foresight import optimiser_report, optimiser_test

    figures = optimiser_test(seed, steps, int(interval) if interval else None)
    click.echo(optimiser_report(figures))
    _write(figures, out)


@ablate.command()
@click.option("--seeds", type=Seeds(), default="1-3", show_default=True)
@click.option("--steps", type=click.IntRange(1), default=1_500_000, show_default=True, help="Of each run.")
@click.option("--out", type=click.Path(dir_okay=False), help="Write the figures as JSON.")
def information(seeds: list[int], steps: int, out: str | None) -> None:
    """Train actors that are shown ever more of the future: what is it worth to know it?"""
    from rlscaler_research.ablation.foresight import information_report, information_test

    figures = information_test(seeds, steps, click.echo)
    click.echo(information_report(figures))
    _write(figures, out)


@ablate.command()
@click.argument("workloads", nargs=-1)
@click.option("--budget", type=click.IntRange(1), help="Trials of each search; as many as contenders have by default.")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Searches side by side, locally.")
@click.option("--ray", "address", help="Ray cluster, ray://host:10001; local processes by default.")
@click.option(
    "--recorded",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON of an earlier test: play its settings again, search none.",
)
@click.option("--out", type=click.Path(dir_okay=False), help="Write the figures as JSON.")
def notice(
    workloads: tuple[str, ...],
    budget: int | None,
    workers: int,
    address: str | None,
    recorded: Path | None,
    out: str | None,
) -> None:
    """Play a rule that sees ever more of the future on WORKLOADS (all by default): how much notice does a load need?"""
    from rlscaler_research.ablation.lookahead import HORIZONS, lookahead_study, report
    from rlscaler_rl.evaluation.tuning.score import WORKLOADS
    from rlscaler_rl.evaluation.tuning.tune import BUDGET

    if unknown := [name for name in workloads if name not in WORKLOADS]:
        raise click.UsageError(f"{', '.join(unknown)}: no such workload; there are {', '.join(WORKLOADS)}")
    known = None
    if recorded is not None:
        if budget is not None:
            raise click.UsageError("--budget: nothing is searched with --recorded; leave one out")
        earlier = json.loads(recorded.read_text(encoding="utf-8"))
        known, budget = earlier["settings"], earlier["budget"]
    figures = lookahead_study(workloads or WORKLOADS, HORIZONS, click.echo, address, workers, budget or BUDGET, known)
    click.echo(report(figures))
    _write(figures, out)


def _write(figures: dict[str, Any], out: str | None) -> None:
    if out:
        Path(out).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
