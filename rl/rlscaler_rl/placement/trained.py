"""Result of a training by any method: a network, its training curve, and the folder that `compare` reads."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlscaler_core.placement.actor import PlacementManifest
from rlscaler_core.placement.features import CONTRACT, columns
from rlscaler_core.placement.policies import Policy
from rlscaler_rl.placement.network import DeepSets, to_onnx

Record = Callable[[str, float, int], None]
"""Receiver of the numbers of a training: name, number and placements so far, as TensorBoard shows them."""

CURVE = "{}.csv"
"""File of a policy's training curve, beside its network."""


def unrecorded(name: str, number: float, placements: int) -> None:
    """Record nothing."""


@dataclass
class Run:
    """Cost and course of a training."""

    placements: int = 0
    seconds: float = 0.0
    """With the looks at validation clusters."""
    looking: float = 0.0
    """Seconds of these looks."""
    curve: list[tuple[int, float]] = field(default_factory=list)
    """Placements, and the score on validation clusters."""

    @property
    def placements_per_second(self) -> float:
        """Without the looks at validation clusters."""
        return self.placements / max(self.seconds - self.looking, 1e-9)

    @property
    def untrained(self) -> bool:
        """Whether no look at validation clusters was better than that before the first placement."""
        return bool(self.curve) and max(score for _, score in self.curve) <= self.curve[0][1]


@dataclass
class Trained:
    """The best network of a run."""

    net: DeepSets
    policy: Policy
    rule: str
    """The rule of its first column."""
    nodes: tuple[int, int]
    """Fewest and most nodes of the clusters that it was trained on."""
    seed: int
    run: Run
    looks: dict[int, DeepSets] = field(default_factory=dict)
    """Network at each look that was kept, by the placements before it."""

    def _remove_former_looks(self, folder: Path) -> None:
        """Remove the networks of looks that this training did not have: they would pass for its own."""
        for network in folder.glob(f"after-*/{self.policy}.onnx"):
            placements = network.parent.name.removeprefix("after-")
            if placements.isdecimal() and int(placements) not in self.looks:
                for file in network.parent.glob(f"{self.policy}.*"):
                    file.unlink()
                if not any(network.parent.iterdir()):
                    network.parent.rmdir()

    def save(self, folder: Path) -> None:
        """Write POLICY.onnx, POLICY.json, and POLICY.csv with the looks at validation clusters.

        Networks of looks go into folders of their own beside them, as after-500; those of an earlier training go.
        """
        self._remove_former_looks(folder)
        for placements, net in self.looks.items():
            at = Run(placements, curve=[look for look in self.run.curve if look[0] <= placements])
            replace(self, net=net, run=at, looks={}).save(folder / f"after-{placements}")
        content = to_onnx(self.net)
        manifest = PlacementManifest(
            contract=CONTRACT,
            policy=self.policy,
            columns=columns(self.policy),
            digest=hashlib.sha256(content).hexdigest(),
            trained_nodes=self.nodes,
            rule=self.rule,
            steps=self.run.placements,
            seed=self.seed,
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.policy}.onnx").write_bytes(content)
        (folder / f"{self.policy}.json").write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
        lines = ["placements,score", *(f"{steps},{score:.6f}" for steps, score in self.run.curve)]
        (folder / CURVE.format(self.policy)).write_text("\n".join(lines) + "\n", encoding="utf-8")
