"""`rlscaler tune`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlscaler_core.options import FILE, PRESENT_FOLDER, names_in, output_option, writable

if TYPE_CHECKING:
    from rlscaler_rl.evaluation.tuning.tune import SearchTask


@click.command()
@click.option("--contenders", help="Only these, comma-separated.", metavar="NAMES")
@click.option("--workloads", help="Only these, comma-separated; `all` is one setting for all loads.", metavar="NAMES")
@click.option("--budget", default=300, show_default=True, type=click.IntRange(1), help="Trials of each search.")
@click.option("--finalists", default=8, show_default=True, type=click.IntRange(1), help="Judged at the request level.")
@click.option("--episodes", default=12, show_default=True, type=click.IntRange(1), help="Played by every trial.")
@click.option("--traces", type=PRESENT_FOLDER, help="Folder of full traces.")
@click.option("--file", "path", type=FILE, callback=writable, help="Cache; the packaged one if not.")
@click.option("--ray", metavar="ADDRESS", help="Spread over Ray: `local`, `auto` or ray://host:10001.")
@click.option("--force", is_flag=True, help="Tune also what is current.")
@click.option("--check", is_flag=True, help="Tune nothing; fail where settings are missing or out of date.")
@output_option
def tune(
    contenders: str | None,
    workloads: str | None,
    budget: int,
    finalists: int,
    episodes: int,
    traces: Path | None,
    path: Path | None,
    ray: str | None,
    force: bool,
    check: bool,
    output: str,
) -> None:
    """Find the best settings of every contender on the tune part of every workload, with equal budgets.

    Settings whose search space, meter, contender and episodes have not changed are kept. As JSON the records are
    printed, with --check those that do not count.
    """
    from rich.console import Console

    from rlscaler_rl.evaluation.tuning import cache, score
    from rlscaler_rl.evaluation.tuning import contenders as known
    from rlscaler_rl.training.errors import TrainingError

    who = _names("--contenders", contenders, tuple(known.CONTENDERS))
    where = _names("--workloads", workloads, (*score.WORKLOADS, score.ALL))
    tuned, as_json = cache.load(path), output == "json"
    from rlscaler_rl.evaluation.tuning import command
    from rlscaler_rl.evaluation.tuning.tune import search_tasks

    chosen = search_tasks(who, where, budget=budget, finalists=finalists, episodes=episodes, traces=traces)
    console = Console(stderr=as_json)
    try:
        if check:
            _show_outdated(command.outdated(chosen, tuned, console), len(chosen), as_json)
            return
        refreshed = command.refresh(chosen, path, console, force=force, ray=ray)
    except TrainingError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(refreshed.model_dump_json(indent=1))


def _show_outdated(reasons: dict[SearchTask, str], count: int, as_json: bool) -> None:
    """Print which settings do not count, and why. Raises ClickException where there are some."""
    from rich.console import Console

    if as_json:
        outdated = [
            {"contender": task.contender, "workload": task.workload, "fold": task.fold, "reason": reason}
            for task, reason in reasons.items()
        ]
        click.echo(json.dumps({"current": count - len(reasons), "outdated": outdated}, indent=1))
    else:
        console = Console(highlight=False)
        for task, reason in reasons.items():
            console.print(f"[bold red]{task.label}[/]: {reason}")
        console.print(f"{count - len(reasons)} of {count} settings are current")
    if reasons:
        raise click.ClickException("tuned settings are out of date; run `rlscaler tune`")


def _names(option: str, text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    chosen = () if text is None else names_in(option, text)
    if unknown := [name for name in chosen if name not in known]:
        raise click.UsageError(f"{option} {', '.join(unknown)}: choose from {', '.join(known)}")
    return chosen
