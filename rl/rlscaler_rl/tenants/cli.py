"""`rlscaler tenants`. Heavy imports wait until a command runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rlscaler_core.options import FOLDER, fresh, names_in, output_option, writable

if TYPE_CHECKING:
    from rlscaler_rl.tenants.compare import Comparison
    from rlscaler_rl.tenants.evaluate import Agents


@click.group()
def tenants() -> None:
    """Play services that share a pool of GPUs, and train agents for them."""


F = TypeVar("F", bound=Callable[..., Any])

TRAINING, PLAYING = ("lambda", "shaping", "roles", "attention"), ("information", "tenants", "changes")
"""Names of the studies in `rlscaler_rl.tenants.studies`, of training and of playing."""
EXPERIMENTS = ("use", "lambda", "information")
"""Names of the experiments in `rlscaler_rl.tenants.task_studies`."""

_shown = partial(click.option, show_default=True)

_TRAINED = Path("results/tenants-train")
_MODELS = _shown(
    "--model", "models", type=FOLDER, multiple=True, default=[_TRAINED], help="Folder of a training (repeatable)."
)
_EPOCHS = _shown("--epochs", default=30, type=click.IntRange(1), help="Episodes to train on.")
_POOLS = _shown("--pools", default=16, type=click.IntRange(3), help="Pools that are played.")
_LOST = _shown("--lost", default=0.0, type=click.FloatRange(0, 1), help="Share of signals lost.")


def _of_a_pool(tenants: int = 6, hours: int = 1, tightness: float = 0.7) -> Callable[[F], F]:
    """Add the options of a pool and its episodes, with these defaults."""
    options = (
        _shown("--tenants", default=tenants, type=click.IntRange(2, 100), help="Tenants of a pool."),
        _shown("--hours", default=hours, type=click.IntRange(1, 24), help="Length of an episode."),
        _shown(
            "--tightness",
            default=tightness,
            type=click.FloatRange(0.1, 10),
            help="GPUs of a pool over what the busy hours of its tenants need together.",
        ),
    )

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_CPU = _shown("--cpu/--no-cpu", default=True, help="Each tenant has a CPU pool of its own too.")


@tenants.command()
@_EPOCHS
@_of_a_pool()
@_CPU
@_shown(
    "--seed",
    "seeds",
    default=[0],
    multiple=True,
    type=click.IntRange(0),
    help="Repeatable: they are trained side by side, each into a folder of its own.",
)
@_shown("--lambda", "local", default=0.5, type=click.FloatRange(0, 1), help="Weight of the own reward.")
@_shown("--shaping", type=click.Choice(["potential", "difference"]), default="potential")
@_shown("--attention", type=click.Choice(["grouped", "dense", "off"]), default="grouped")
@_LOST
@click.option("--arbiter-alone", is_flag=True, help="Train the arbiter alone; tenants act as the forecast rule.")
@click.option("--homogeneous", is_flag=True, help="One policy for all agents: roles off.")
@_shown("--out", type=FOLDER, callback=writable, default=_TRAINED)
@click.option("--force", is_flag=True, help="Overwrite the agents in --out.")
def train(
    out: Path,
    force: bool,
    seeds: tuple[int, ...],
    lost: float,
    arbiter_alone: bool,
    homogeneous: bool,
    cpu: bool,
    **options: Any,
) -> None:
    """Train the agents of tenants and their arbiter (HRAC with local-global reward shaping)."""
    from rlscaler_rl.tenants import hrac
    from rlscaler_rl.tenants.signals import Loss

    folders = {seed: out if len(seeds) == 1 else out / f"seed-{seed}" for seed in seeds}
    for folder in folders.values():
        fresh(folder / "training_progress.json", force)
    acts = (not arbiter_alone, cpu and not arbiter_alone, True)
    chosen = hrac.Options(loss=Loss(lost), acts=acts, cpu=cpu, **options)
    if homogeneous:
        chosen = hrac.homogeneous(chosen)
    for trained in hrac.train_together([replace(chosen, seed=seed) for seed in seeds], click.echo):
        folder = folders[trained.options.seed]
        trained.save(folder)
        gained = f"{trained.epochs_to()} epochs to 95 % of what was gained on the tune loads"
        click.echo(f"{trained.seconds:.0f} s, {gained}; {folder}/")


@tenants.command()
@_MODELS
@_POOLS
@_of_a_pool()
@_CPU
@_LOST
@_shown("--seed", default=999, type=click.IntRange(0))
@_shown("--out", type=FOLDER, callback=writable, default=Path("results/tenants-evaluate"))
@output_option
def evaluate(models: tuple[Path, ...], lost: float, out: Path, output: str, **options: Any) -> None:
    """Play trained agents beside every way to share a pool, on loads that no agent was trained on."""
    from rlscaler_rl.tenants import evaluate as evaluation
    from rlscaler_rl.tenants.draw import TEST_LOADS, Request
    from rlscaler_rl.tenants.signals import Loss

    several = _agents(models)
    request = Request(loads=TEST_LOADS, **options)
    _show(evaluation.evaluate(several, request, _printer(output), Loss(lost)), out, output)


@tenants.command()
@click.argument("name", type=click.Choice([*TRAINING, *PLAYING]))
@_shown("--seeds", default=5, type=click.IntRange(1, 100), help="Trainings of each variant.")
@_EPOCHS
@_POOLS
@click.option("--model", "models", type=FOLDER, multiple=True, help="Training folder to play (repeatable).")
@_shown("--out", type=FOLDER, callback=writable, default=Path("results/tenants-study"))
@output_option
def study(name: str, seeds: int, epochs: int, pools: int, models: tuple[Path, ...], out: Path, output: str) -> None:
    """Vary one setting: of the training, or of the pools that trained agents are played on."""
    if models and name not in PLAYING:
        raise click.UsageError(f"--model: {name} trains its own agents; leave it out, or name {' or '.join(PLAYING)}")
    trained = _agents(models or [_TRAINED]) if name in PLAYING else []
    from rlscaler_core.decision.exceptions import ModelError
    from rlscaler_rl.evaluation.errors import EvaluationError
    from rlscaler_rl.results.document import show, write
    from rlscaler_rl.tenants import picture, studies
    from rlscaler_rl.tenants.hrac import Options

    options, folder, say = Options(epochs=epochs), out / name, _printer(output)
    try:
        if trained:
            done = studies.study_playing(name, trained, options, pools, say)
        else:
            done = studies.study_training(name, options, list(range(seeds)), pools, out / "trainings", say)
    except ModelError as error:
        raise EvaluationError(str(error)) from error
    lines = studies.report(done)
    write(done, lines, folder, "study")
    picture.draw(done, folder / "study.png")
    show(done, ["", *lines], output)


@tenants.command()
@click.argument("name", type=click.Choice(EXPERIMENTS))
@_shown("--tasks", "count", default=1000, type=click.IntRange(120), help="Tasks that come in an episode.")
@_shown("--seeds", default=3, type=click.IntRange(1, 100), help="Trainings of each variant.")
@_shown("--epochs", default=40, type=click.IntRange(1), help="Episodes to train on.")
@click.option("--folder", type=FOLDER, help="Folder of the trace's files; see `rlscaler scheduler openb`.")
@_shown("--out", type=FOLDER, callback=writable, default=Path("results/tenants-tasks"))
@output_option
def tasks(name: str, count: int, seeds: int, epochs: int, folder: Path | None, out: Path, output: str) -> None:
    """Repeat an experiment of HRAC (arXiv 2508.10253) on tasks of Alibaba's openb, beside the paper's figures.

    use: its three roles beside one for all. lambda: weights of the own reward. information: observations lost.
    """
    from rlscaler_rl.placement.openb import OpenbError, task_list
    from rlscaler_rl.results.document import show, write
    from rlscaler_rl.tenants import task_studies as studies
    from rlscaler_rl.tenants.tasks import Tasks

    try:
        recorded = Tasks.of(*task_list(folder))
    except OpenbError as error:
        raise click.ClickException(str(error)) from error
    options = replace(studies.OPTIONS, epochs=epochs)
    done = studies.study(name, recorded, count, options, list(range(seeds)), _printer(output))
    lines = studies.report(done)
    write(done, lines, out / name, "tasks")
    studies.draw(done, out / name / "tasks.png")
    show(done, ["", *lines], output)


def _agents(folders: Iterable[Path]) -> list[Agents]:
    """Return the agents of folders, read before torch is imported. Raises EvaluationError for a folder without any."""
    from rlscaler_core.decision.exceptions import ModelError
    from rlscaler_rl.evaluation.errors import EvaluationError
    from rlscaler_rl.tenants.evaluate import Agents

    try:
        return [Agents(folder) for folder in folders]
    except ModelError as error:
        raise EvaluationError(f"--model {error}") from error


def _printer(output: str) -> Callable[[str], None]:
    """Return a function that prints progress: on standard error where standard output gets the JSON."""
    return partial(click.echo, err=output == "json")


def _show(comparison: Comparison, out: Path, output: str) -> None:
    """Write the files of a comparison, and print it."""
    from rlscaler_rl.results.document import show, write
    from rlscaler_rl.tenants.compare import report

    lines = report(comparison)
    write(comparison, lines, out, "table")
    show(comparison, ["", *lines, f"{comparison.seconds:.0f} s; {out}/"], output)


@tenants.command()
@_POOLS
@_of_a_pool(tenants=8, hours=6, tightness=1.0)
@_shown(
    "--change",
    type=click.Choice(["none", "join", "leave", "gpus"]),
    default="none",
    help="A tenant joins, is away in the middle third, or a quarter of the GPUs is lost there.",
)
@click.option("--loads", help="Names by commas: of the library of days, or jobs_N, random_N. Default: those that ship.")
@_shown("--seed", default=0, type=click.IntRange(0))
@click.option("--folder", type=FOLDER, help="Folder of the files that do not ship; see `rlscaler trace days`.")
@_shown("--out", type=FOLDER, callback=writable, default=Path("results/tenants"))
@output_option
def compare(loads: str | None, out: Path, output: str, **options: Any) -> None:
    """Play the same tenants without a budget and under each arbiter, with the forecast rule as proposer."""
    from rlscaler_rl.tenants import compare as comparison
    from rlscaler_rl.tenants.draw import LOADS, Request

    names = LOADS if loads is None else names_in("--loads", loads)
    _show(comparison.compare(Request(loads=names, **options), _printer(output)), out, output)
