"""Rules and networks on the same drawn clusters, by size, with intervals over clusters and training seeds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click
import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_core.placement.policies import DEFAULT_RULE, Policy
from rlscaler_rl.evaluation.statistics import Design, Interval, over_seeds, weights
from rlscaler_rl.placement.drawn import LOADS, TEST_SEED, Setting
from rlscaler_rl.placement.play import Contender, Played, play, random_node, rule, score

RIVALS: Mapping[Policy, tuple[str, ...]] = {
    Policy.EE: ("pack", "least-extension", "pack-and-extension", "most-allocated", "best-fit"),
    Policy.LB: ("spread", "least-allocated"),
    Policy.EL: ("latency-then-pack", "latency-fit", "latency-first"),
    Policy.GPU: ("fragmentation", "fragmentation-and-cores", "best-fit", "pack"),
}
"""Rules that each policy is compared with; the first is its default."""


TRUSTED_ERROR = 0.5
"""Error of lifetimes above which no rule that goes by them is ahead of `pack`."""


def strongest(policy: Policy, lifetimes_known: bool, lifetime_error: float) -> str:
    """The rule that a network begins as: the one that scores highest on two dozen nodes and more."""
    if policy is Policy.EE and lifetimes_known and lifetime_error <= TRUSTED_ERROR:
        return "pack-and-extension" if lifetime_error else "least-extension"
    return {Policy.EL: "latency-fit", Policy.GPU: "best-fit"}.get(policy, DEFAULT_RULE[policy])


@dataclass(frozen=True)
class Row:
    """One contender on clusters of one size; of a network that was trained with several seeds their mean."""

    name: str
    nodes: int
    trained: int
    """Training seeds; 1 for rules."""
    score: float
    ahead: Interval
    """Mean difference to the policy's default rule on the same clusters, with its 95 % interval over clusters and
    training seeds; below two clusters that are scored the interval is NaN."""
    ahead_of_strongest: Interval
    """The same beside the rule with the highest mean."""
    against_strongest: float
    """The mean of `ahead_of_strongest` as a share of the strongest rule's score."""
    in_use: float
    latency_met: float
    refused: float
    """Means over clusters that are scored and training seeds, as `Played` has them."""


def compare(
    policy: Policy,
    networks: Mapping[str, Sequence[Contender]],
    sizes: Sequence[int],
    clusters: int,
    lifetimes_known: bool = False,
    lifetime_error: float = 0.0,
    *,
    say: Callable[[str], None],
) -> list[Row]:
    """Play every rule, and every network with each of its training seeds, on the same clusters of every size.

    `say` is told what was played and how long that took: a network on a thousand nodes takes minutes.

    Raises:
        UsageError: nothing is scored in any cluster of a size.
    """
    contenders = {name: [rule(name)] for name in RIVALS[policy]} | {"random": [random_node()]} | dict(networks)
    rows = []
    for nodes in sizes:
        setting = Setting(policy, nodes, clusters, LOADS[policy], lifetimes_known, lifetime_error)
        found: dict[str, list[Played]] = {}
        for name, ones in contenders.items():
            began = time.monotonic()
            found[name] = [play(one, setting, TEST_SEED) for one in ones]
            say(f"{nodes} nodes: {name} played {clusters} clusters in {time.monotonic() - began:.0f} s")
        rows += _rows(policy, nodes, found)
    return rows


def _rows(policy: Policy, nodes: int, found: Mapping[str, list[Played]]) -> list[Row]:
    """Rows of what was played, by contender and training seed. Clusters in which nothing is scored are left out.

    Raises:
        UsageError: no cluster is left.
    """
    scores = {name: np.array([score(policy, one) for one in played]) for name, played in found.items()}
    scored = np.isfinite(scores[RIVALS[policy][0]][0])
    if not scored.any():
        what = "has a GPU" if policy is Policy.GPU else "took a pod"
        raise click.UsageError(
            f"none of the {len(scored)} clusters of {nodes} nodes {what}, so there is nothing to compare: "
            "name more clusters by --clusters, or more nodes by --nodes"
        )
    scores = {name: of[:, scored] for name, of in scores.items()}
    default = scores[RIVALS[policy][0]][0]
    best = max((scores[name][0] for name in RIVALS[policy]), key=lambda of: float(of.mean()))
    return [
        Row(
            name,
            nodes,
            len(played),
            float(scores[name].mean()),
            _interval(scores[name] - default),
            _interval(scores[name] - best),
            float((scores[name].mean() - best.mean()) / abs(best.mean())),
            float(np.mean([one.in_use[scored] for one in played])),
            float(np.mean([one.latency_met[scored] for one in played])),
            float(np.mean([one.refused[scored] for one in played])),
        )
        for name, played in found.items()
    ]


def _interval(ahead: Float) -> Interval:
    """The mean of differences (training seeds, clusters) with its interval over both; one cluster gives none."""
    if ahead.shape[1] < 2:
        return Interval(float(ahead.mean()), math.nan, math.nan)
    drawn_often = weights(Design(1, ahead.shape[1]))
    return Interval.of(float(ahead.mean()), over_seeds([drawn_often @ one for one in ahead]))


def with_interval(one: Interval) -> str:
    """A mean and its interval in brackets; the mean alone where there is none."""
    return f"{one.mean:+.4f}" + ("" if math.isnan(one.low) else f" [{one.low:+.4f}, {one.high:+.4f}]")


def table(policy: Policy, rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    default = RIVALS[policy][0]
    what = "GPUs used" if policy is Policy.GPU else "thesis' reward"
    lines = [
        f"| nodes | contender | {what} | ahead of {default} (95 %) | ahead of the strongest rule (95 %) | in percent "
        "| nodes in use | latency met | refused |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = row.name if row.trained == 1 else f"{row.name}, {row.trained} training seeds"
        ahead = "" if row.name == default else with_interval(row.ahead)
        is_strongest = row.against_strongest == 0 and row.name in RIVALS[policy]
        of_best = "the strongest" if is_strongest else with_interval(row.ahead_of_strongest)
        lines.append(
            f"| {row.nodes} | {name} | {row.score:.4f} | {ahead} | {of_best} | {100 * row.against_strongest:+.1f} % | "
            f"{row.in_use:.3f} | {row.latency_met:.3f} | {row.refused:.4f} |"
        )
    return "\n".join(lines)
