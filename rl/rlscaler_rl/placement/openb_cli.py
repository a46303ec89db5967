"""`rlscaler scheduler openb`: the trace's files, a network that is searched on it, and the replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.options import writable
from rlscaler_core.placement.rules import GPU_RULES
from rlscaler_rl.placement.openb import POD_LISTS

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_FILES = click.option("--folder", type=_FOLDER, help="$RLSCALER_OPENB or ~/.local/share/rlscaler/openb by default.")

_REFERENCE = "fgd best fit"
"""Exact FGD and best fit: who is played beside it is compared with it, pods in the same order."""


def paired(differences: np.ndarray) -> str:
    """Mean of differences (seeds,) and its interval of 95 % by Student's distribution, which takes two of them."""
    from scipy.special import stdtrit

    mean, count = differences.mean(), len(differences)
    if count < 2:
        return f"{mean:+.2f}"
    half = stdtrit(count - 1, 0.975) * differences.std(ddof=1) / np.sqrt(count)
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


@click.group()
def openb() -> None:
    """Alibaba's trace of a cluster with shared GPUs: 1,213 nodes, 6,212 GPUs, 8,152 pods."""


@openb.command()
@click.argument("originals", type=_FILE, nargs=-1, required=True)
@_FILES
def make(originals: tuple[Path, ...], folder: Path | None) -> None:
    """Check the published ORIGINALS and put them where `replay` finds them."""
    from rlscaler_rl.placement.openb import OpenbError
    from rlscaler_rl.placement.openb import make as put

    try:
        for path in put(originals, folder):
            click.echo(path)
    except OpenbError as error:
        raise click.ClickException(str(error)) from error


@openb.command()
@_FILES
@click.option("--out", type=_FOLDER, callback=writable, required=True, help="Folder for GPU.onnx and GPU.json.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--generations", default=240, show_default=True, type=click.IntRange(1))
@click.option(
    "--rule",
    type=click.Choice(list(GPU_RULES)),
    default="fragmentation-and-cores",
    show_default=True,
    help="Rule that the network begins as.",
)
def train(folder: Path | None, out: Path, seed: int, generations: int, rule: str) -> None:
    """Search a network on half of the nodes and pods: clusters of 60 to 200 nodes, filled until 130 %."""
    from rlscaler_rl.placement.evolution import Evolution
    from rlscaler_rl.placement.openb import OpenbError, load
    from rlscaler_rl.placement.openb_search import Options, search

    try:
        cluster = load(folder=folder)
    except OpenbError as error:
        raise click.ClickException(str(error)) from error
    began = time.process_time()
    trained = search(cluster, Options(Evolution(seed, generations), rule), click.echo)
    trained.save(out)
    click.echo(f"{out / 'GPU.onnx'}: {trained.run.seconds:.0f} s, {time.process_time() - began:.0f} s of CPU")


@openb.command()
@_FILES
@click.option("--seeds", default=10, show_default=True, type=click.IntRange(1))
@click.option("--ties", type=click.Choice(["name", "random"]), default="name", show_default=True)
@click.option(
    "--ratio", default=1.3, show_default=True, type=click.FloatRange(0.1, 1.39), help="Requested GPUs, over all GPUs."
)
@click.option("--weight", type=click.FloatRange(0), help="Weight of best fit beside exact FGD; default: the rule's.")
@click.option("--model-dir", "models", type=_FOLDER, multiple=True, help="Folder of a network (repeatable).")
@click.option(
    "--unseen",
    type=click.Choice(["pods", "nodes"]),
    multiple=True,
    help="Only the half that no training sees (repeatable).",
)
@click.option(
    "--typical",
    "expected",
    type=click.Choice(["trace", "default"]),
    default="trace",
    show_default=True,
    help="Pods that fragmentation and cores are counted for: the trace's, as published, or those of a cluster.",
)
@click.option(
    "--pod-list",
    type=click.Choice(list(POD_LISTS)),
    metavar="NAME",
    default="default",
    show_default=True,
    help="Published list of pods: openb_pod_list_NAME.csv.",
)
@click.option("--scheduler", "only", multiple=True, help="Of the schedulers only this one (repeatable); default: all.")
def replay(
    folder: Path | None,
    seeds: int,
    ties: str,
    ratio: float,
    weight: float | None,
    models: tuple[Path, ...],
    unseen: tuple[str, ...],
    expected: str,
    pod_list: str,
    only: tuple[str, ...],
) -> None:
    """Replay the trace by inflation with the published schedulers, the project's rules, and networks.

    The last column has how many points each has allocated more than FGD with best fit, over the same orders of pods.
    """
    from rlscaler_core.placement.actor import PlacementActor
    from rlscaler_core.placement.fragmentation import DEFAULT_TYPICAL, typical
    from rlscaler_core.placement.policies import Policy
    from rlscaler_core.placement.rules import BEST_FIT_WEIGHT
    from rlscaler_rl.placement import inflation
    from rlscaler_rl.placement.openb import Cluster, OpenbError, inflated, load
    from rlscaler_rl.placement.openb_search import halves
    from rlscaler_rl.placement.published import Replayed, Scheduler, Ties
    from rlscaler_rl.placement.published import replay as play

    names = {scheduler.name.replace("_", " ").lower(): scheduler for scheduler in Scheduler}
    if wrong := set(only) - set(names):
        raise click.UsageError(f"--scheduler: {', '.join(sorted(wrong))} is none of {', '.join(names)}")
    try:
        cluster = load(POD_LISTS[pod_list], folder)
        actors = {str(model): PlacementActor.load(model, Policy.GPU) for model in models}
    except OpenbError as error:
        raise click.ClickException(str(error)) from error
    except ModelError as error:
        raise click.UsageError(f"--model-dir: {error}") from error
    if unseen:
        other = halves(cluster)[1]
        cluster = Cluster(
            other.nodes if "nodes" in unseen else cluster.nodes, other.pods if "pods" in unseen else cluster.pods
        )
    nodes, pods, gpus = *cluster, float(cluster.nodes.gpus.sum())
    kinds = typical(pods) if expected == "trace" else DEFAULT_TYPICAL
    rule = Ties.BY_NAME if ties == "name" else Ties.RANDOM
    best_fit = BEST_FIT_WEIGHT if weight is None else weight

    def of(scheduler: Scheduler) -> Callable[[np.ndarray, int], Replayed]:
        return lambda order, seed: play(nodes, pods, order, kinds, scheduler, rule, seed, best_fit)

    def network(actor: PlacementActor) -> Callable[[np.ndarray, int], Replayed]:
        return lambda order, seed: inflation.replay(
            nodes, pods, order, kinds, actor.manifest.rule, actor.values, rule, seed
        )

    contenders = {name: of(scheduler) for name, scheduler in names.items() if not only or name in only}
    contenders |= {f"network {name}": network(actor) for name, actor in actors.items()}
    click.echo(f"| scheduler | at 100 % | at the end | sd | CPU s | against {_REFERENCE} (95 %) |")
    click.echo("|---|---|---|---|---|---|")
    reference: np.ndarray | None = None
    for name, plays in sorted(contenders.items(), key=lambda replayed: replayed[0] != _REFERENCE):
        shares, took = [], []
        for seed in range(seeds):
            order = inflated(pods, gpus, ratio, np.random.default_rng(42 + seed))
            began = time.process_time()
            replayed = plays(order, seed)
            took.append(time.process_time() - began)
            shares.append((replayed.curve[100], replayed.allocated))
        at, end = np.mean(shares, axis=0)
        ends = np.array(shares)[:, 1]
        ahead = "-" if reference is None else paired(ends - reference)
        if name == _REFERENCE:
            reference = ends
        click.echo(f"| {name} | {at:.2f} | {end:.2f} | {ends.std():.2f} | {np.median(took):.2f} | {ahead} |")
