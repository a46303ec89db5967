"""Evaluation of one network beside the rules on clusters that no training draws: figures and a picture."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rlscaler_core.placement.actor import PlacementActor, PlacementManifest
from rlscaler_core.placement.policies import Policy
from rlscaler_rl.placement.compare import DIGITS, Row, compare, table
from rlscaler_rl.placement.drawn import TEST_SEED
from rlscaler_rl.placement.play import network
from rlscaler_rl.placement.trained import CURVE
from rlscaler_rl.results import document
from rlscaler_rl.results.document import Document, Progress
from rlscaler_rl.results.figures import COLOURS, figure, headline, means_with_bars, save, styled
from rlscaler_rl.results.statistics import Verdict

NETWORK = "network"
"""Name of the trained contender."""


class Evaluation(Document):
    """Result file `evaluation.json`."""

    version: str
    manifest: PlacementManifest
    seed: int
    """Seed of the clusters."""
    clusters: int
    """Clusters of each size."""
    lifetimes_known: bool
    lifetime_error: float
    rows: list[Row]
    curve: list[tuple[int, float]]
    """Placements, and the score on validation clusters after them; empty where the folder lacks the file."""

    @property
    def policy(self) -> Policy:
        """Scoring policy of the network."""
        return self.manifest.policy


def evaluate(
    folder: Path,
    policy: Policy,
    sizes: Sequence[int],
    clusters: int,
    lifetimes_known: bool = False,
    lifetime_error: float = 0.0,
    *,
    say: Progress,
) -> Evaluation:
    """Play the network of a folder and every rule on the same clusters.

    `say` is that of `compare`. Raises ModelError.
    """
    actor = PlacementActor.load(folder, policy)
    return Evaluation(
        version=version("rlscaler"),
        manifest=actor.manifest,
        seed=TEST_SEED,
        clusters=clusters,
        lifetimes_known=lifetimes_known,
        lifetime_error=lifetime_error,
        rows=compare(policy, {NETWORK: [network(actor)]}, sizes, clusters, lifetimes_known, lifetime_error, say=say),
        curve=curve_of(folder / CURVE.format(policy)),
    )


def curve_of(path: Path) -> list[tuple[int, float]]:
    """Return placements and score at each validation of the training; empty without the file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [(int(row["placements"]), float(row["score"])) for row in csv.DictReader(file)]


def verdicts(done: Evaluation) -> list[str]:
    """Return a sentence for each size of cluster: whether the network is ahead of the policy's rule."""
    # Scores are better the higher they are, so a `loss` of `Verdict` is an interval above zero: ahead.
    words = {Verdict.LOSS: "ahead of", Verdict.WIN: "behind", Verdict.UNDECIDED: "not told apart from"}
    return [
        f"{row.nodes} nodes: {words[row.ahead.verdict]} the policy's rule, {row.ahead.shown(DIGITS)}; "
        f"ahead of the strongest rule by {row.ahead_of_strongest.shown(DIGITS)}, {100 * row.against_strongest:+.1f} %"
        for row in done.rows
        if row.name == NETWORK
    ]


def report(done: Evaluation) -> list[str]:
    """Return the table and the verdicts as lines of Markdown."""
    return [*table(done.policy, done.rows).markdown(), "", *verdicts(done)]


def write(done: Evaluation, folder: Path) -> None:
    """Write evaluation.json, evaluation.md and evaluation.png."""
    document.write(done, report(done), folder, "evaluation")
    _draw(done, folder / "evaluation.png")


def _draw(done: Evaluation, path: Path) -> None:
    """Draw the lead of each contender over the policy's rule by size of cluster, and the training's validations."""
    picture = figure(10.5, 4.2)
    with styled():
        ahead, trained = picture.subplots(1, 2, width_ratios=(3, 2))
    sizes = sorted({row.nodes for row in done.rows})
    names = [name for name in dict.fromkeys(row.name for row in done.rows) if name != "random"]
    for index, name in enumerate(names):
        rows = sorted((row for row in done.rows if row.name == name), key=lambda row: row.nodes)
        place = [sizes.index(row.nodes) + 0.12 * (index - (len(names) - 1) / 2) for row in rows]
        colour = COLOURS["policy"] if name == NETWORK else None
        means_with_bars(ahead, place, [row.ahead for row in rows], label=name, color=colour)
    ahead.set_xticks(range(len(sizes)), [f"{size} nodes" for size in sizes])
    ahead.set_ylabel(f"ahead of {names[0]} (95 %)")
    ahead.legend(loc="best", fontsize=8)
    thousands = [placements / 1000 for placements, _ in done.curve]
    trained.plot(thousands, [score for _, score in done.curve], "o-", color=COLOURS["policy"])
    trained.set_xlabel("thousand placements")
    trained.set_ylabel("score on validation clusters")
    headline(picture, f"{done.policy}: the network beside the rules, {done.clusters} clusters of each size", 11)
    save(picture, path)
