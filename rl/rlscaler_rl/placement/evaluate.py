"""One trained network beside the rules on clusters that no training can reach: a folder with figures and a picture."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rlscaler_core.placement.actor import PlacementActor, PlacementManifest
from rlscaler_core.placement.policies import Policy
from rlscaler_rl.evaluation.plots.look import COLOURS, figure, headline, save, styled
from rlscaler_rl.placement.compare import Row, compare, table, with_interval
from rlscaler_rl.placement.drawn import TEST_SEED
from rlscaler_rl.placement.play import network
from rlscaler_rl.placement.trained import CURVE

NETWORK = "network"
"""The contender that was trained."""


class Evaluation(BaseModel):
    """What `evaluation.json` holds."""

    model_config = ConfigDict(extra="forbid")

    version: str
    manifest: PlacementManifest
    seed: int
    """Draws the clusters."""
    clusters: int
    """Clusters of each size."""
    lifetimes_known: bool
    lifetime_error: float
    rows: list[Row]
    curve: list[tuple[int, float]]
    """Placements, and the score on validation clusters then; empty where the folder does not say."""

    @property
    def policy(self) -> Policy:
        """What the network is for."""
        return self.manifest.policy


def evaluate(
    folder: Path,
    policy: Policy,
    sizes: Sequence[int],
    clusters: int,
    lifetimes_known: bool = False,
    lifetime_error: float = 0.0,
    *,
    say: Callable[[str], None],
) -> Evaluation:
    """Play the network of a folder and every rule on the same clusters; `say` as in `compare`. Raises ModelError."""
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
    """What training wrote of its looks at validation clusters; empty without the file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [(int(row["placements"]), float(row["score"])) for row in csv.DictReader(file)]


def verdicts(done: Evaluation) -> list[str]:
    """A sentence for each size of cluster: whether the network is ahead of the policy's rule."""
    found = []
    for row in done.rows:
        if row.name == NETWORK:
            how = "ahead of" if row.ahead.low > 0 else "behind" if row.ahead.high < 0 else "not told apart from"
            found.append(
                f"{row.nodes} nodes: {how} the policy's rule, {with_interval(row.ahead)}; "
                f"ahead of the strongest rule by {with_interval(row.ahead_of_strongest)}, "
                f"{100 * row.against_strongest:+.1f} %"
            )
    return found


def write(done: Evaluation, folder: Path) -> None:
    """Write evaluation.json, evaluation.md and evaluation.png."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evaluation.json").write_text(done.model_dump_json(indent=1) + "\n", encoding="utf-8")
    text = "\n".join([table(done.policy, done.rows), "", *verdicts(done)])
    (folder / "evaluation.md").write_text(text + "\n", encoding="utf-8")
    _draw(done, folder / "evaluation.png")


def _draw(done: Evaluation, path: Path) -> None:
    """How far each contender is ahead of the policy's rule by size of cluster, and how the network was trained."""
    made = figure(10.5, 4.2)
    with styled():
        ahead, trained = made.subplots(1, 2, width_ratios=(3, 2))
    sizes = sorted({row.nodes for row in done.rows})
    names = [name for name in dict.fromkeys(row.name for row in done.rows) if name != "random"]
    for index, name in enumerate(names):
        rows = sorted((row for row in done.rows if row.name == name), key=lambda row: row.nodes)
        place = [sizes.index(row.nodes) + 0.12 * (index - (len(names) - 1) / 2) for row in rows]
        mean = [row.ahead.mean for row in rows]
        beside = [[row.ahead.mean - row.ahead.low for row in rows], [row.ahead.high - row.ahead.mean for row in rows]]
        colour = COLOURS["policy"] if name == NETWORK else None
        ahead.errorbar(place, mean, yerr=beside, fmt="o", capsize=3, label=name, color=colour)
    ahead.set_xticks(range(len(sizes)), [f"{size} nodes" for size in sizes])
    ahead.set_ylabel(f"ahead of {names[0]} (95 %)")
    ahead.legend(loc="best", fontsize=8)
    thousands = [placements / 1000 for placements, _ in done.curve]
    trained.plot(thousands, [score for _, score in done.curve], "o-", color=COLOURS["policy"])
    trained.set_xlabel("thousand placements")
    trained.set_ylabel("score on validation clusters")
    headline(made, f"{done.policy}: the network beside the rules, {done.clusters} clusters of each size", 11)
    save(made, path)
