"""`rlscaler scheduler train` and `compare`: networks that place pods, and their rivals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.options import FOLDER, fresh, output_option, writable
from rlscaler_core.placement.policies import RULES_OF, Policy

if TYPE_CHECKING:
    from rlscaler_rl.placement.trained import Trained

_POLICY = click.argument("policy", type=click.Choice(list(Policy)))
_LIFETIMES = click.option("--lifetimes", "lifetimes_known", is_flag=True, help="Pods state their lifetime.")

_LIFETIME_ERROR = click.option(
    "--lifetime-error",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 3),
    help="Error of the stated lifetimes: standard deviation of their logarithm.",
)


@click.command()
@_POLICY
@_LIFETIMES
@_LIFETIME_ERROR
@click.option(
    "--out",
    type=FOLDER,
    callback=writable,
    required=True,
    help="Folder for POLICY.onnx, POLICY.json and TensorBoard files.",
)
@click.option("--force", is_flag=True, help="Overwrite the network in --out.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 10**8))
@click.option("--rule", help="Rule that the network begins as; by default the strongest.")
@click.option(
    "--method",
    type=click.Choice(["evolution", "dqn"]),
    default="evolution",
    show_default=True,
    help="Evolution strategies, which score whole episodes, or DQN, which learns from each placement.",
)
@click.option("--generations", type=click.IntRange(1), help="Generations of evolution.  [default: 64]")
@click.option("--steps", type=click.IntRange(1000), help="Placements of DQN.  [default: 120000; of the thesis 2000]")
@click.option("--gamma", type=click.FloatRange(0, 0.999), help="Discount of DQN.  [default: 0.9; of the thesis 0.99]")
@click.option(
    "--learning-rate",
    type=click.FloatRange(0, 1, min_open=True),
    help="Step size of DQN.  [default: 0.001; of the thesis 0.0025]",
)
@click.option(
    "--explore-share",
    type=click.FloatRange(0, 1, min_open=True),
    help="Share of the steps in which DQN's exploration falls.  [default: 0.5; of the thesis 0.3]",
)
@click.option(
    "--learning-starts",
    type=click.IntRange(0),
    help="Placements before DQN's first update.  [default: 0; of the thesis 300]",
)
@click.option(
    "--keep-looks", is_flag=True, help="Keep DQN's network at each look as well, in folders such as OUT/after-500."
)
@click.option(
    "--thesis-reward",
    is_flag=True,
    help="DQN with the rewards, ends of episodes and settings of the thesis, for EE, LB and EL.",
)
def train(
    policy: str,
    out: Path,
    force: bool,
    seed: int,
    rule: str | None,
    method: str,
    generations: int | None,
    **options: Any,
) -> None:
    """Train a network for POLICY.

    It begins as the strongest rule on two dozen nodes and more: spread for LB, latency-fit for EL, best-fit for GPU,
    and for EE pack, with --lifetimes least-extension, or pack-and-extension where these are wrong by up to a half.
    """
    from rlscaler_rl.placement.compare import strongest
    from rlscaler_rl.placement.drawn import LOADS

    chosen = Policy(policy)
    fresh(out / f"{policy}.onnx", force)
    if rule is not None and rule not in RULES_OF[chosen]:
        raise click.UsageError(f"--rule: {rule} is none of {chosen}: {', '.join(RULES_OF[chosen])}")
    setting = {name: options.pop(name) for name in ("lifetimes_known", "lifetime_error")}
    begins = rule or strongest(chosen, **setting)
    if method == "dqn":
        if generations is not None:
            raise click.UsageError("--generations belongs to --method evolution: name --steps")
        trained = _by_dqn(chosen, out, rule=begins, load=LOADS[chosen], seed=seed, **setting, **options)
    else:
        if wrong := [name for name, value in options.items() if value is not None and value is not False]:
            named = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
            raise click.UsageError(f"{named}: only DQN has it; name --method dqn, or leave it out")
        trained = _by_evolution(chosen, out, generations, rule=begins, load=LOADS[chosen], seed=seed, **setting)
    trained.save(out)
    run = trained.run
    if run.untrained:
        click.echo("no look was better than the untrained network, which is the one that was saved")
    click.echo(f"{out / policy}.onnx: {run.seconds:.0f} s, {run.placements_per_second:.0f} placements/s while learning")


def _by_evolution(policy: Policy, out: Path, generations: int | None, seed: int, **setting: Any) -> Trained:
    from torch.utils.tensorboard import SummaryWriter

    from rlscaler_rl.placement.drawn_search import EVOLUTION, Options, search

    evolution = replace(EVOLUTION, seed=seed, generations=generations or EVOLUTION.generations)
    with SummaryWriter(str(out / "tensorboard")) as board:
        return search(Options(policy, evolution, **setting), click.echo, board.add_scalar)


def _by_dqn(policy: Policy, out: Path, thesis_reward: bool, **options: Any) -> Trained:
    from torch.utils.tensorboard import SummaryWriter

    from rlscaler_rl.placement import dqn, thesis

    if thesis_reward and policy not in thesis.POLICIES:
        raise click.UsageError(
            f"--thesis-reward: the thesis has {', '.join(thesis.POLICIES)}; leave it out for {policy}"
        )
    begun = dqn.thesis(dqn.Options(policy)) if thesis_reward else dqn.Options(policy)
    described = replace(begun, **{name: value for name, value in options.items() if value is not None})
    with SummaryWriter(str(out / "tensorboard")) as board:
        return dqn.train(described, click.echo, board.add_scalar)


@click.command()
@_POLICY
@_LIFETIMES
@_LIFETIME_ERROR
@click.option("--model-dir", "folders", type=FOLDER, multiple=True, help="Folder of a network (repeatable).")
@click.option("--nodes", "sizes", multiple=True, type=click.IntRange(2), default=(4, 12, 100), show_default=True)
@click.option("--clusters", default=16, show_default=True, type=click.IntRange(2), help="Clusters of each size.")
@click.option("--out", type=FOLDER, callback=writable, help="Folder for comparison.json, .md and .png.")
@output_option
def compare(policy: str, folders: tuple[Path, ...], out: Path | None, output: str, **options: Any) -> None:
    """Play networks beside the rules of POLICY on clusters that no training draws: a table in Markdown.

    Folders whose names differ only in the training seed at their end, as EE-0 and EE-1, are one network: one row has
    the mean over its seeds, with an interval over training seeds and clusters.
    """
    from rlscaler_core.placement.actor import PlacementActor

    chosen = Policy(policy)
    try:
        actors = [(folder.name, PlacementActor.load(folder, chosen)) for folder in folders]
    except ModelError as error:
        raise click.UsageError(f"--model-dir: {error}") from error
    from rlscaler_rl.placement import compare as comparison
    from rlscaler_rl.placement.play import Contender, network
    from rlscaler_rl.results.document import show

    networks: dict[str, list[Contender]] = {}
    for name, actor in actors:
        networks.setdefault(f"network {name.removesuffix(f'-{actor.manifest.seed}')}", []).append(network(actor))
    done = comparison.compare(chosen, networks, **options, say=lambda text: click.echo(text, err=True))
    if out is not None:
        comparison.save_all(done, out)
    show(done, comparison.table(chosen, done.rows).markdown(), output)
