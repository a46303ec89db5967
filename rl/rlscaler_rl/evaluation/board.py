"""Scores of every contender on every workload, and their resampled means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.results.statistics import Design, Interval, over_seeds, weights

METRICS = {
    "j": "score: cost + 0.5 x late_percent, lower is better",
    "cost": "mean of the running and starting replicas, GPU replica equivalents (a CPU replica counts its price ratio)",
    "late_percent": "% of all requests not answered within the SLO: late, dropped, or timed out",
    "goodput_rps": "requests answered within the SLO a second",
    "goodput_per_cost": "goodput_rps / cost (objective performance_cost)",
    "p50_ms": "median latency of the answered requests of an episode, ms",
    "p95_ms": "95th percentile latency, ms",
    "p99_ms": "99th percentile latency, ms",
    "gpu_replica_seconds": "GPU replica-seconds paid for in an episode",
    "cpu_replica_seconds": "CPU replica-seconds paid for in an episode",
    "scale_ups": "raises of a pool in an episode",
    "scale_downs": "cuts of a pool in an episode",
    "placement_changes": "changes of the placement in an episode",
    "dropped": "requests refused or timed out in an episode",
}

ALL = "all"
POLICY, SEED = "policy", "seed"
"""Roles: the shipped model, whose name is the same, and the same recipe trained with other seeds."""


class Named(Protocol):
    """Name, label and role of a contender: the part of `lineup.Entry` that rows need."""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def role(self) -> str: ...


@dataclass(slots=True)
class Board:
    """(workload, contender) -> metric -> scores (N,), rows run by run."""

    entries: Sequence[Named]
    apart: Sequence[str] = ()
    """Workloads that are reported and not part of `all`."""

    seed: int = 0
    """Seed of the resampling."""

    designs: dict[str, Design] = field(default_factory=dict)
    """Workload -> dependence between its episodes."""

    scores: dict[tuple[str, str], dict[str, Float]] = field(default_factory=dict)
    _resampled: dict[tuple[str, str], Float] = field(default_factory=dict)
    """(workload, contender) -> resampled means of J."""

    def add(
        self, workload: str, contender: str, scores: dict[str, Float], blocks: tuple[int, ...] | None = None
    ) -> None:
        """Add scores (runs, episodes) by metric; `blocks` (runs x episodes) is the trace block of each episode.

        Raises ValueError where J is undefined in an episode.
        """
        # A mean over the episodes in which J happens to be defined would not be a paired comparison.
        if not np.isfinite(scores["j"]).all():
            raise ValueError(f"{workload}, {contender}: J is undefined in some episodes; every episode needs a score")
        runs, episodes = scores["j"].shape
        self.designs.setdefault(workload, Design(runs, episodes, blocks))
        self.scores[workload, contender] = {name: _defined(values).ravel() for name, values in scores.items()}

    @property
    def workloads(self) -> list[str]:
        return list(self.designs)

    @property
    def averaged(self) -> list[str]:
        """Workloads that `all` is the mean of; workloads apart only where no other was played."""
        return [name for name in self.workloads if name not in self.apart] or self.workloads

    def parts(self, workload: str) -> list[str]:
        return self.averaged if workload == ALL else [workload]

    @property
    def policy(self) -> Named:
        return next(entry for entry in self.entries if entry.role == POLICY)

    @property
    def models(self) -> list[str]:
        """The shipped policy and its siblings from other training seeds."""
        return [entry.name for entry in self.entries if entry.role in (POLICY, SEED)]

    def played(self, workload: str, contender: str) -> bool:
        return all((part, contender) in self.scores for part in self.parts(workload))

    def decidable(self, workload: str) -> bool:
        """Return True where the workload has enough independent units for a verdict."""
        # A mean over workloads needs less of each: only a single block has no spread that could be resampled.
        if workload == ALL:
            return all(self.designs[part].units > 1 for part in self.averaged)
        return self.designs[workload].decidable

    def mean(self, workload: str, contender: str, metric: str) -> float:
        """Return the mean over all episodes; in `all` every workload has the same weight."""
        return float(np.mean([self.scores[part, contender][metric].mean() for part in self.parts(workload)]))

    def by_run(self, workload: str, contender: str, metric: str) -> Float:
        """Return the mean of each run, (runs,)."""
        parts = self.parts(workload)
        runs = self.designs[parts[0]].runs
        means = [self.scores[part, contender][metric].reshape(runs, -1).mean(axis=1) for part in parts]
        return np.asarray(np.mean(means, axis=0))

    def resampled(self, workload: str, contender: str, metric: str) -> Float:
        """Return resampled means (B,); the resamples are the same for every contender and metric."""
        return np.asarray(np.mean([self._of_part(part, contender, metric) for part in self.parts(workload)], axis=0))

    def _of_part(self, workload: str, contender: str, metric: str) -> Float:
        drawn = weights(self.designs[workload], self.workloads.index(workload), self.seed)
        if metric != "j":
            return np.asarray(drawn @ self.scores[workload, contender][metric])
        # Only J is kept, which every comparison needs: all metrics of all contenders would be half a gigabyte.
        if (workload, contender) not in self._resampled:
            self._resampled[workload, contender] = drawn @ self.scores[workload, contender]["j"]
        return self._resampled[workload, contender]

    def interval(self, statistic: Callable[[Callable[[str, str], Float]], Float], workload: str) -> Interval:
        """Return the interval of a function of means, `statistic(read)`.

        `read(contender, metric)` is a mean or its resamples.
        """

        def once(contender: str, metric: str) -> Float:
            return np.array([self.mean(workload, contender, metric)])

        mean = float(statistic(once)[0])
        return Interval.of(mean, statistic(lambda contender, metric: self.resampled(workload, contender, metric)))

    def over_seeds(self, workload: str, metric: str = "j") -> tuple[float, Float]:
        """Return the mean over the training seeds, and means (B,) resampled over seeds and episodes at once."""
        resampled = [self.resampled(workload, name, metric) for name in self.models]
        return float(np.mean([self.mean(workload, name, metric) for name in self.models])), over_seeds(
            resampled, self.seed
        )


def _defined(values: Float) -> Float:
    """Return values in which undefined ones (no request, no latency) are the mean of the others."""
    known = np.isfinite(values)
    if known.all():
        return values
    return np.where(known, values, values[known].mean() if known.any() else 0.0)
