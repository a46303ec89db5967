"""`rlscaler tune`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--contenders", help="Only these, comma-separated.", metavar="NAMES")
@click.option("--workloads", help="Only these, comma-separated; `all` is one setting for all loads.", metavar="NAMES")
@click.option("--budget", default=300, show_default=True, type=click.IntRange(1), help="Trials of each search.")
@click.option("--finalists", default=8, show_default=True, type=click.IntRange(1), help="Judged at the request level.")
@click.option("--episodes", default=12, show_default=True, type=click.IntRange(1), help="Played by every trial.")
@click.option("--traces", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder of full traces.")
@click.option("--file", "path", type=click.Path(dir_okay=False, path_type=Path), help="Cache; the packaged one if not.")
@click.option("--ray", metavar="ADDRESS", help="Spread over Ray: `local`, `auto` or ray://host:10001.")
@click.option("--force", is_flag=True, help="Tune also what is current.")
@click.option("--check", is_flag=True, help="Tune nothing; fail where settings are missing or out of date.")
@click.option("--table", is_flag=True, help="Tune nothing; print the settings as Markdown.")
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
    table: bool,
) -> None:
    """Find the best settings of every contender on the tune part of every workload, with equal budgets.

    Settings whose search space, meter, contender and episodes have not changed are kept.
    """
    from rich.console import Console

    from rlscaler_rl.evaluation.errors import EvaluationError
    from rlscaler_rl.evaluation.tuning import cache, command, score
    from rlscaler_rl.evaluation.tuning import contenders as known
    from rlscaler_rl.evaluation.tuning.tune import ALL, search_tasks
    from rlscaler_rl.training.errors import TrainingError

    try:
        if table:
            click.echo(command.tables(cache.load(path)), nl=False)
            return
        chosen = search_tasks(
            _names("--contenders", contenders, tuple(known.CONTENDERS)),
            _names("--workloads", workloads, (*score.WORKLOADS, ALL)),
            budget=budget,
            finalists=finalists,
            episodes=episodes,
            traces=traces,
        )
        console = Console()
        if check:
            if not command.check(chosen, path, console):
                raise click.ClickException("tuned settings are out of date; run `rlscaler tune`")
            return
        command.refresh(chosen, path, console, force=force, ray=ray)
    except (EvaluationError, TrainingError) as error:
        raise click.ClickException(str(error)) from error


def _names(option: str, text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if unknown := [name for name in chosen if name not in known]:
        raise click.UsageError(f"{option} {', '.join(unknown)}: choose from {', '.join(known)}")
    return chosen
