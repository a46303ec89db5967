"""`rlscaler train`, which with `--for` trains for one service instead of for all."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from rlscaler_core.options import FILE, FOLDER, PRESENT_FILE, writable
from rlscaler_rl.results.document import print_table
from rlscaler_rl.workloads.cli import FILL, OF_PROMETHEUS, asked, refuse_of_prometheus
from rlscaler_rl.workloads.recording import read_load

MODELS = Path(str(files("rlscaler_core.models")))

WIDTH = 150
"""Columns of a terminal that the table of KISim takes."""

PUBLISH, DO_NOT_PUBLISH = 0, 3
"""Exit codes; 2 is bad input."""

ROUTERS = ("least_loaded", "random", "round_robin", "power_of_two", "central")
"""The same names as in `rlscaler_rl.simulation.cluster`, whose import needs numba; a help page must not need it."""


@click.command("train")
@click.option("--steps", type=click.IntRange(1), help="Environment steps (action intervals); 300,000 by default.")
@click.option("--seed", type=click.IntRange(0), help="Seeds the scenarios, the networks and the sampled actions.")
@click.option("--config", type=PRESENT_FILE, help="JSON file with the parts `environment` and `agent`.")
@click.option("--out", type=FOLDER, callback=writable, help="Result folder; rl/training_YYYYMMDD_HHMMSS by default.")
@click.option("--seeds", help="Several seeds side by side, such as 1,2,3,4,5, and one network made of them.")
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
def general(
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
    evaluations and TensorBoard files. A --config of KISim (four weights of the reward, or its names of PPO's
    parameters) runs that experiment instead: no rule and no shield, and baselines of one pool beside it.
    """
    from rlscaler_rl.training.config import ConfigError, TrainingConfig
    from rlscaler_rl.training.errors import TrainingError

    if seeds is None and address is not None:
        raise click.UsageError("--ray: name the seeds to train there with --seeds 1,2,3")
    if seeds is not None and (seed is not None or environment == "cluster"):
        raise click.UsageError("--seeds: leave out --seed and --env cluster")
    from rlscaler_live.kisim.config import is_kisim

    if config is not None and is_kisim(config):
        if seeds is not None or resume or install:
            raise click.UsageError(f"{config}: a configuration of KISim; leave out --seeds, --resume and --install")
        _run_kisim(config, out, steps, 1 if seed is None else seed, environment == "cluster")
        return
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
    if resume and config is None and out is not None and (out / "config.json").exists():
        config = out / "config.json"
    numbers = _seeds(seeds)
    try:
        settings = TrainingConfig.load(config, steps=steps, seed=seed)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    from rlscaler_rl.training import train as runs

    folder = out or runs.new_folder()
    try:
        if numbers:
            _train_seeds(settings, numbers, folder, address, workers=workers, resume=resume)
        else:
            with runs.Stop() as stop:
                runs.train(settings, folder, resume=resume, progress=not quiet, stop=stop, say=click.echo)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except TrainingError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        if (folder / "policy.onnx").exists():
            click.echo(runs.summary(folder))
        again = f"--seeds {seeds} " if seeds else ""
        click.echo(f"stopped; go on with: rlscaler train --resume {again}--out {folder}")
        raise click.exceptions.Exit(runs.EXIT_CODE) from None
    click.echo(runs.summary(folder))
    if install:
        runs.install(folder, MODELS)
        click.echo(f"installed as {MODELS / 'ppo.onnx'} and {MODELS / 'ppo.json'}")


def _run_kisim(path: Path, out: Path | None, steps: int | None, seed: int, live: bool) -> None:
    """Run the experiment of a KISim configuration, whose cluster is the file's or one that is started for it."""
    from rlscaler_live.ground import ground
    from rlscaler_live.kisim.config import KisimConfig
    from rlscaler_live.kisim.experiment import run
    from rlscaler_rl.training.config import ConfigError
    from rlscaler_rl.training.train import new_folder

    try:
        config = KisimConfig.load(path)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if steps is not None:
        episodes = -(-steps // config.environment.intervals)
        config = config.model_copy(update={"training": config.training.model_copy(update={"episodes": episodes})})
    folder = out or new_folder()
    with ExitStack() as stack:
        cluster = stack.enter_context(ground(config.environment.cluster(), folder, seed, click.echo)) if live else None
        table = run(config, folder, click.echo, seed=seed, cluster=cluster)
    print_table(table, [f"{folder / 'kisim.png'} has the picture, {folder / 'kisim.json'} all figures"], WIDTH)


def _seeds(seeds: str | None) -> list[int]:
    """The numbers of `--seeds`, none without it. Raises UsageError."""
    if seeds is None:
        return []
    try:
        numbers = [int(part) for part in seeds.split(",")]
    except ValueError as error:
        raise click.UsageError(f"--seeds {seeds}: whole numbers with commas between are needed, as 1,2,3") from error
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise click.UsageError(f"--seeds {seeds}: every seed once, and none below 0")
    return numbers


def _train_seeds(settings: Any, numbers: list[int], folder: Path, address: str | None, **options: Any) -> None:
    """Print the result of every seed; raises ClickException where one failed."""
    from rlscaler_rl.training.seeds import table, train_seeds

    results = train_seeds(settings, numbers, folder, address, say=click.echo, **options)
    click.echo(table(results))
    if failed := [str(result.seed) for result in results if result.error]:
        raise click.ClickException(f"seeds {', '.join(failed)} failed, see above; the others are in {folder}")


SHARED = ("steps", "seed", "out", "quiet")
"""Options of the general training that also mean something with `--for`."""

OWN: tuple[click.Option, ...] = (
    click.Option(
        ["--for", "policy"],
        type=FILE,
        help="YAML of an RLScalingPolicy: fine-tune for that one service, with a verdict on publishing the result.",
    ),
    click.Option(
        ["--history"],
        type=FILE,
        help="With --for: the service's past load, CSV with time_s,requests_per_s; needs no --prometheus.",
    ),
    click.Option(["--prometheus"], metavar="URL", help="With --for: Prometheus that has the past load."),
    *OF_PROMETHEUS,
    FILL,
    click.Option(
        ["--model"], help="With --for: network to start from, a folder, .onnx or .zip; default: the bundled one."
    ),
    click.Option(
        ["--seconds"],
        type=click.FloatRange(1),
        help="With --for: time limit of training, shared by both networks; 150 by default.",
    ),
    click.Option(["--replicas"], metavar="GPU,CPU", help="With --for: the fixed replicas of today, for comparison."),
    click.Option(
        ["--scrape-seconds"],
        type=int,
        default=15,
        show_default=True,
        help="With --for: scrape interval of the metrics.",
    ),
    click.Option(
        ["--router"],
        type=click.Choice(ROUTERS),
        default=ROUTERS[0],
        show_default=True,
        help="With --for: routing of requests to pods; `random` is a plain Service (kube-proxy).",
    ),
    click.Option(
        ["--level"],
        type=click.Choice(["request", "fluid"]),
        default="request",
        show_default=True,
        help="With --for: level of the simulator for the verdict.",
    ),
)

HELP = f"""{general.help}

With --for the general policy is fine-tuned twice (2 million steps together) on one service's own capacity, cold start,
prices and recorded load, under the policy's own spec and under the best that a search found around it, tried on the
held-back last quarter of that load against tuned rivals and against what runs today, and the verdict is printed: exit
code 0 = publish, 3 = do not publish. Changes of the spec that help are printed too. The folder
(rl/tailoring_YYYYMMDD_HHMMSS by default) gets policy.onnx, manifest.json, verdict.json, report.txt and, where the spec
should change, spec-patch.yaml; see `rlscaler publish`.
"""


def _dispatch(**options: Any) -> None:
    own = {option.name or "": options.pop(option.name or "") for option in OWN}
    context = click.get_current_context()
    given = [name for name in [*own, *options] if context.get_parameter_source(name) is not _DEFAULT]
    if own["policy"] is None:
        if misplaced := [_flag(name) for name in given if name in own]:
            raise click.UsageError(f"{', '.join(misplaced)}: only with --for, which names the service's policy")
        assert general.callback is not None
        context.invoke(general.callback, **options)
        return
    allowed = (*own, *SHARED)
    misplaced = [
        _flag(name) for name in given if name not in allowed and (name, options[name]) != ("environment", "sim")
    ]
    if misplaced:
        raise click.UsageError(f"{', '.join(misplaced)}: not with --for; leave it out")
    _tune_for_service(**{name: options[name] for name in SHARED}, **own)


_DEFAULT = click.core.ParameterSource.DEFAULT


def _flag(name: str) -> str:
    context = click.get_current_context()
    return next(parameter.opts[0] for parameter in context.command.params if parameter.name == name)


def _tune_for_service(
    *, steps: int | None, seed: int | None, out: Path | None, quiet: bool, policy: Path, level: Any, **own: Any
) -> None:
    from rlscaler_rl.evaluation.models import load_start
    from rlscaler_rl.evaluation.service_tuning import service
    from rlscaler_rl.evaluation.service_tuning.history import prepare
    from rlscaler_rl.training.errors import DivergedError

    known = service.read_policy(policy)
    chosen = service.service_of(known, own["scrape_seconds"], _replicas(own["replicas"]), own["router"])
    trace, source = _history(own)
    chosen = chosen.with_history(trace.length_s)
    history, start = prepare(trace, source, chosen), load_start(own["model"])
    from rlscaler_rl.evaluation.service_tuning import report, run
    from rlscaler_rl.training.finetune import FineTuning, given

    training = FineTuning(**given({"seconds": own["seconds"]})).with_agent(steps=steps, seed=seed)
    options = run.Options(training=training, level=level)
    folder = out or Path("rl") / f"tailoring_{datetime.now():%Y%m%d_%H%M%S}"
    say = (lambda text: None) if quiet else click.echo
    try:
        verdict = run.tune_for_service(chosen, history, start, options, folder, say)
    except DivergedError as error:
        raise click.ClickException(f"{policy}: fine-tuning diverged: {error}") from error
    click.echo(report.text_report(verdict) + f"{folder}")
    click.get_current_context().exit(PUBLISH if verdict.publish else DO_NOT_PUBLISH)


def _replicas(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(part.strip().isdigit() for part in parts):
        raise click.UsageError(f"--replicas {text}: write the GPU and the CPU replicas like 2,4; 0 for a missing pool")
    return int(parts[0]), int(parts[1])


def _history(own: dict[str, Any]) -> tuple[Any, str]:
    """Return the trace and its name."""
    path, url = own["history"], own["prometheus"]
    if (path is None) == (url is None):
        raise click.UsageError("--for: give the past load with --history FILE.csv or --prometheus URL --query PROMQL")
    if path is not None:
        refuse_of_prometheus()
        return read_load(path, fill=own["fill"]), str(path)
    given = {option.name: own[option.name] for option in (*OF_PROMETHEUS, FILL) if option.name}
    return asked(url, **given), own["query"]


train = click.Command("train", params=[*general.params, *OWN], callback=_dispatch, help=HELP)
