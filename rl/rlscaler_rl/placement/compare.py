"""Comparison of rules and networks on the same drawn clusters, with intervals over clusters and training seeds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import click
import numpy as np

from rlscaler_core.placement.policies import DEFAULT_RULE, Policy
from rlscaler_rl.placement.drawn import LOADS, TEST_SEED, Setting
from rlscaler_rl.placement.play import Contender, Played, play, random_node, rule, score
from rlscaler_rl.results.document import Document, Progress, write
from rlscaler_rl.results.figures import figure, headline, means_with_bars, save, styled
from rlscaler_rl.results.statistics import Interval, mean_interval
from rlscaler_rl.results.table import Column, Table

RIVALS: Mapping[Policy, tuple[str, ...]] = {
    Policy.EE: ("pack", "least-extension", "pack-and-extension", "most-allocated", "best-fit"),
    Policy.LB: ("spread", "least-allocated"),
    Policy.EL: ("latency-then-pack", "latency-fit", "latency-first"),
    Policy.GPU: ("fragmentation", "fragmentation-and-cores", "best-fit", "pack"),
}
"""Rules that each scoring policy is compared with; the first is its default."""

FEWEST_CLUSTERS = 2
"""Scored clusters below which there is no interval: the scores of drawn clusters are means over thousands of pods."""

DIGITS = "+.4f"

TRUSTED_ERROR = 0.5
"""Error of lifetimes above which no rule that uses them is ahead of `pack`."""


def strongest(policy: Policy, lifetimes_known: bool, lifetime_error: float) -> str:
    """Return the rule that a network begins as: the rule with the highest score on two dozen nodes and more."""
    if policy is Policy.EE and lifetimes_known and lifetime_error <= TRUSTED_ERROR:
        return "pack-and-extension" if lifetime_error else "least-extension"
    return {Policy.EL: "latency-fit", Policy.GPU: "best-fit"}.get(policy, DEFAULT_RULE[policy])


@dataclass(frozen=True)
class Row:
    """One contender on clusters of one size; a network of several training seeds has their mean."""

    name: str
    nodes: int
    trained: int
    """Training seeds; 1 for rules."""
    score: float
    ahead: Interval
    """Mean difference to the policy's default rule on the same clusters, with its 95 % interval over clusters and
    training seeds; without bounds below two scored clusters."""
    ahead_of_strongest: Interval
    """The same against the rule with the highest mean."""
    against_strongest: float
    """The mean of `ahead_of_strongest` as a share of the strongest rule's score."""
    in_use: float
    latency_met: float
    refused: float
    """Means over clusters that are scored and training seeds, as `Played` has them."""


class Comparison(Document):
    """Result file `comparison.json`."""

    version: str
    policy: Policy
    seed: int
    """Seed of the clusters."""
    clusters: int
    """Clusters of each size."""
    lifetimes_known: bool
    lifetime_error: float
    rows: list[Row]


def compare(
    policy: Policy,
    networks: Mapping[str, Sequence[Contender]],
    sizes: Sequence[int],
    clusters: int,
    lifetimes_known: bool = False,
    lifetime_error: float = 0.0,
    *,
    say: Progress,
) -> Comparison:
    """Play every rule, and every network with each of its training seeds, on the same clusters of every size.

    `say` gets a line for each contender with its time: a network on a thousand nodes takes minutes.

    Raises:
        UsageError: nothing is scored in any cluster of a size.
    """
    contenders = {name: [rule(name)] for name in RIVALS[policy]} | {"random": [random_node()]} | dict(networks)
    rows = []
    for nodes in sizes:
        setting = Setting(policy, nodes, clusters, LOADS[policy], lifetimes_known, lifetime_error)
        played: dict[str, list[Played]] = {}
        for name, by_seed in contenders.items():
            began = time.monotonic()
            played[name] = [play(contender, setting, TEST_SEED) for contender in by_seed]
            say(f"{nodes} nodes: {name} played {clusters} clusters in {time.monotonic() - began:.0f} s")
        rows += _rows(policy, nodes, played)
    return Comparison(
        version=version("rlscaler"),
        policy=policy,
        seed=TEST_SEED,
        clusters=clusters,
        lifetimes_known=lifetimes_known,
        lifetime_error=lifetime_error,
        rows=rows,
    )


def _rows(policy: Policy, nodes: int, played: Mapping[str, list[Played]]) -> list[Row]:
    """Return a row for each contender, from its runs by training seed. Clusters without a score are left out.

    Raises:
        UsageError: no cluster is left.
    """
    rules = RIVALS[policy]
    scores = {name: np.array([score(policy, run) for run in runs]) for name, runs in played.items()}
    scored = np.isfinite(scores[rules[0]][0])
    if not scored.any():
        lacking = "has a GPU" if policy is Policy.GPU else "took a pod"
        raise click.UsageError(
            f"none of the {len(scored)} clusters of {nodes} nodes {lacking}, so there is nothing to compare: "
            "name more clusters by --clusters, or more nodes by --nodes"
        )
    scores = {name: by_seed[:, scored] for name, by_seed in scores.items()}
    default = scores[rules[0]][0]
    best = max((scores[name][0] for name in rules), key=lambda by_cluster: float(by_cluster.mean()))
    return [
        Row(
            name,
            nodes,
            len(runs),
            float(scores[name].mean()),
            mean_interval(scores[name] - default, FEWEST_CLUSTERS),
            mean_interval(scores[name] - best, FEWEST_CLUSTERS),
            float((scores[name].mean() - best.mean()) / abs(best.mean())),
            float(np.mean([run.in_use[scored] for run in runs])),
            float(np.mean([run.latency_met[scored] for run in runs])),
            float(np.mean([run.refused[scored] for run in runs])),
        )
        for name, runs in played.items()
    ]


def table(policy: Policy, rows: Sequence[Row]) -> Table:
    """Return the rows as a table."""
    default = RIVALS[policy][0]

    def ahead_of_strongest(row: Row) -> str:
        is_strongest = row.against_strongest == 0 and row.name in RIVALS[policy]
        return "the strongest" if is_strongest else f"{row.ahead_of_strongest:{DIGITS}}"

    columns: dict[str, Column] = {
        "nodes": "{0.nodes}",
        "contender": lambda row: row.name if row.trained == 1 else f"{row.name}, {row.trained} training seeds",
        "GPUs used" if policy is Policy.GPU else "score": "{0.score:.4f}",
        f"ahead of {default} (95 %)": lambda row: "" if row.name == default else f"{row.ahead:{DIGITS}}",
        "ahead of the strongest rule (95 %)": ahead_of_strongest,
        "in percent": lambda row: f"{100 * row.against_strongest:+.1f} %",
        "nodes in use": "{0.in_use:.3f}",
        "latency met": "{0.latency_met:.3f}",
        "refused": "{0.refused:.4f}",
    }
    return Table.of(columns, rows, text_columns=2)


def save_all(done: Comparison, folder: Path) -> None:
    """Write comparison.json, comparison.md and comparison.png: the lead over the policy's rule by size of cluster."""
    write(done, table(done.policy, done.rows).markdown(), folder, "comparison")
    sizes = sorted({row.nodes for row in done.rows})
    names = [name for name in dict.fromkeys(row.name for row in done.rows) if name != "random"]
    picture = figure(7.5, 4.2)
    with styled():
        axes = picture.subplots()
    for index, name in enumerate(names):
        rows = [row for row in done.rows if row.name == name]
        place = [sizes.index(row.nodes) + 0.12 * (index - (len(names) - 1) / 2) for row in rows]
        means_with_bars(axes, place, [row.ahead for row in rows], label=name)
    axes.set_xticks(range(len(sizes)), [f"{size} nodes" for size in sizes])
    axes.set_ylabel(f"ahead of {RIVALS[done.policy][0]} (95 %)")
    axes.legend(loc="best", fontsize=8)
    headline(picture, f"{done.policy}: {done.clusters} clusters of each size", 11)
    save(picture, folder / "comparison.png")
