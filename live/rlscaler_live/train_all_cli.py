"""`rlscaler train`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import click

MODELS = Path(str(files("rlscaler_core.models")))


@click.command()
@click.option("--steps", type=click.IntRange(1), help="Environment steps (action intervals); 12 million by default.")
@click.option("--seed", type=int, help="Seeds the scenarios, the networks and the sampled actions.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="JSON file with the parts `environment` and `agent`.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Result folder; rl/training_YYYYMMDD_HHMMSS by default.",
)
@click.option("--seeds", help="Several seeds side by side, such as 1,2,3,4,5; the best by validation is exported.")
@click.option(
    "--ray",
    "address",
    help="Where the seeds are trained: local (default), auto inside a Ray cluster, or ray://host:10001.",
)
@click.option(
    "--workers", type=click.IntRange(1), default=2, show_default=True, help="Seeds at a time on this machine."
)
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in --out.")
@click.option("--install", is_flag=True, help="Make the result the bundled policy of this source tree.")
@click.option(
    "--env",
    "environment",
    type=click.Choice(["sim", "cluster"]),
    default="sim",
    show_default=True,
    help="Where episodes run.",
)
@click.option("--quiet", is_flag=True, help="No progress bar.")
def train(
    steps: int | None,
    seed: int | None,
    config: Path | None,
    out: Path | None,
    seeds: str | None,
    address: str | None,
    workers: int,
    resume: bool,
    install: bool,
    environment: str,
    quiet: bool,
) -> None:
    """Train a policy with PPO and export it as ONNX.

    The folder gets best_model.zip, policy.onnx, manifest.json, checkpoints, training_progress.json and .png,
    evaluations and TensorBoard files.
    """
    from rlscaler_rl.training import train as runs
    from rlscaler_rl.training.config import ConfigError, TrainingConfig
    from rlscaler_rl.training.errors import TrainingError
    from rlscaler_rl.training.stopping import EXIT_CODE, Stop

    if seeds is None and address is not None:
        raise click.UsageError("--ray: name the seeds to train there with --seeds 1,2,3")
    if seeds is not None and (seed is not None or environment == "cluster"):
        raise click.UsageError("--seeds: leave out --seed and --env cluster")
    if environment == "cluster":
        if resume or install:
            raise click.UsageError("--env cluster: --resume and --install are for --env sim; leave them out")
        from rlscaler_live.train import train as train_live

        try:
            click.echo(f"{train_live(config, out, click.echo, steps=steps, seed=seed)}")
        except TrainingError as error:
            raise click.ClickException(str(error)) from error
        return
    if resume and out is None:
        raise click.UsageError("--resume: name the folder to go on from with --out")
    folder = out or runs.new_folder()
    if resume and config is None and (folder / "config.json").exists():
        config = folder / "config.json"
    try:
        settings = TrainingConfig.load(config, steps=steps, seed=seed)
        if seeds is not None:
            _train_seeds(settings, seeds, folder, address, workers=workers, resume=resume)
        else:
            with Stop() as stop:
                runs.train(settings, folder, resume=resume, progress=not quiet, stop=stop, say=click.echo)
    except (ConfigError, TrainingError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        if (folder / "policy.onnx").exists():
            click.echo(runs.summary(folder))
        again = f"--seeds {seeds} " if seeds else ""
        click.echo(f"stopped; go on with: rlscaler train --resume {again}--out {folder}")
        raise click.exceptions.Exit(EXIT_CODE) from None
    click.echo(runs.summary(folder))
    if install:
        runs.install(folder, MODELS)
        click.echo(f"installed as {MODELS / 'ppo.onnx'} and {MODELS / 'ppo.json'}")


def _train_seeds(settings: Any, seeds: str, folder: Path, address: str | None, **options: Any) -> None:
    """Print what came of every seed; raises ClickException where one failed."""
    from rlscaler_rl.training.seeds import table, train_seeds

    try:
        numbers = [int(part) for part in seeds.split(",")]
    except ValueError as error:
        raise click.UsageError(f"--seeds {seeds}: whole numbers with commas between are needed, as 1,2,3") from error
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise click.UsageError(f"--seeds {seeds}: every seed once, and none below 0")
    outcomes = train_seeds(settings, numbers, folder, address, say=click.echo, **options)
    click.echo(table(outcomes))
    if failed := [str(outcome.seed) for outcome in outcomes if outcome.error]:
        raise click.ClickException(f"seeds {', '.join(failed)} failed, see above; the others are in {folder}")
