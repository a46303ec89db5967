"""Rules and networks on the same drawn clusters, by size, with intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlscaler_core.placement.policies import Policy
from rlscaler_rl.placement.dqn import score
from rlscaler_rl.placement.drawn import Setting
from rlscaler_rl.placement.play import Contender, Played, play, random_node, rule

RIVALS: Mapping[Policy, tuple[str, ...]] = {
    Policy.EE: ("pack", "least-extension", "most-allocated", "best-fit"),
    Policy.LB: ("spread", "least-allocated"),
    Policy.EL: ("latency-then-pack", "latency-first"),
    Policy.GPU: ("fragmentation", "best-fit", "pack"),
}
"""Rules that each policy is compared with; the first is its default."""

LOADS: Mapping[Policy, float] = {Policy.EE: 0.6, Policy.LB: 0.6, Policy.EL: 0.4, Policy.GPU: 0.9}
"""Share of the CPU (GPU: of the GPUs) that is asked for."""

FIRST_TEST_SEED = 5000
"""Training and validation use seeds far below."""

_T95 = (math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for 95 % by degrees of freedom."""


@dataclass(frozen=True)
class Row:
    """One contender on clusters of one size."""

    name: str
    nodes: int
    score: float
    ahead: float
    """Mean difference to the policy's default rule on the same clusters."""
    interval: float
    """Half of its 95 % interval over seeds; NaN with one seed."""
    means: Played


def clusters_of(nodes: int) -> int:
    """How many clusters a seed plays at once: fewer of large ones."""
    return max(1, min(16, 400 // nodes))


def compare(
    policy: Policy,
    networks: Mapping[str, Contender],
    sizes: Sequence[int],
    seeds: int,
    lifetimes_known: bool = False,
) -> list[Row]:
    """Play every contender on the same clusters of every size; one row each."""
    contenders = {name: rule(name) for name in RIVALS[policy]} | {"random": random_node()} | dict(networks)
    rows = []
    for nodes in sizes:
        setting = Setting(policy, nodes, clusters_of(nodes), LOADS[policy], lifetimes_known)
        found = {
            name: [play(contender, setting, FIRST_TEST_SEED + seed) for seed in range(seeds)]
            for name, contender in contenders.items()
        }
        default = np.array([score(policy, one) for one in found[RIVALS[policy][0]]])
        for name, played in found.items():
            scores = np.array([score(policy, one) for one in played])
            ahead = scores - default
            half = _T95[min(seeds - 1, 9)] * ahead.std(ddof=1) / math.sqrt(seeds) if seeds > 1 else math.nan
            means = Played(*np.mean([tuple(vars(one).values()) for one in played], axis=0).tolist())
            rows.append(Row(name, nodes, float(scores.mean()), float(ahead.mean()), float(half), means))
    return rows


def table(policy: Policy, rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    what = "GPUs used" if policy is Policy.GPU else "thesis' reward"
    lines = [
        f"| nodes | contender | {what} | ahead of {RIVALS[policy][0]} (95 %) | nodes in use | latency met | refused |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ahead = "" if row.name == RIVALS[policy][0] else f"{row.ahead:+.4f} ± {row.interval:.4f}"
        lines.append(
            f"| {row.nodes} | {row.name} | {row.score:.4f} | {ahead} | {row.means.in_use:.3f} | "
            f"{row.means.latency_met:.3f} | {row.means.refused:.4f} |"
        )
    return "\n".join(lines)
