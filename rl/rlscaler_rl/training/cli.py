"""`rlscaler train`."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import click

MODELS = Path(__file__).resolve().parent.parent / "models"


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

    if environment == "cluster":
        if resume or install:
            raise click.UsageError("--env cluster: --resume and --install are for --env sim; leave them out")
        # What trains there builds on this package and is found by its entry point.
        (found,) = entry_points(group="rlscaler.live", name="train")
        click.echo(f"{found.load()(config, out, click.echo, steps=steps, seed=seed)}")
        return
    if resume and out is None:
        raise click.UsageError("--resume: name the folder to go on from with --out")
    folder = out or runs.new_folder()
    if resume and config is None and (folder / "config.json").exists():
        config = folder / "config.json"
    try:
        settings = TrainingConfig.load(config, steps=steps, seed=seed)
        runs.train(settings, folder, resume=resume, progress=not quiet)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    click.echo(runs.summary(folder))
    if install:
        runs.install(folder, MODELS)
        click.echo(f"installed as {MODELS / 'ppo.onnx'} and {MODELS / 'ppo.json'}")
