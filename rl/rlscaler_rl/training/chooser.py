"""Choice among the networks of a training: tried now and then on episodes that no training plays."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from stable_baselines3.common.callbacks import BaseCallback

from rlscaler_core.decision.manifest import Manifest
from rlscaler_rl.training.export import NumpyActor


@dataclass(slots=True)
class Candidate:
    """The actor after so many steps, and its score."""

    steps: int
    actor: NumpyActor
    j: float
    """Mean J on the episodes of the choice, at the level that tries every candidate."""

    final: float = float("nan")
    """The same at the level that judges; NaN where it was not among the best."""


class Chooser(BaseCallback):
    """Tries the policy every so many steps, beginning with the start itself, and ends training in time.

    :param judge: returns the mean J of an actor.
    :param tried: called with each candidate.
    :param seconds: wall-clock time after which training ends, however many steps were made.
    """

    def __init__(
        self,
        manifest: Manifest,
        judge: Callable[[NumpyActor], float],
        every: int,
        tried: Callable[[Candidate], None],
        seconds: float = float("inf"),
    ) -> None:
        super().__init__()
        self.manifest, self.judge, self.every, self.tried, self.limit = manifest, judge, every, tried, seconds
        self.candidates: list[Candidate] = []
        self.seconds, self.cut_short = 0.0, False

    def _on_training_start(self) -> None:
        self.began = time.monotonic()

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= len(self.candidates) * self.every:
            self._try()

    def _on_step(self) -> bool:
        self.seconds = time.monotonic() - self.began
        self.cut_short = self.seconds > self.limit
        return not self.cut_short

    def _on_training_end(self) -> None:
        self._try()

    def _try(self) -> None:
        actor = NumpyActor.of(self.model.policy, self.manifest)
        self.candidates.append(Candidate(self.num_timesteps, actor, self.judge(actor)))
        self.tried(self.candidates[-1])
