"""Episodes of one service under its own load, and the score of an episode."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_loadgen.patterns import rates
from rlscaler_rl.baselines.contender import cheapest_mix
from rlscaler_rl.evaluation.service_tuning.history import GROWTH, History
from rlscaler_rl.evaluation.service_tuning.service import UTILIZATION, Service
from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.episode import LATE_WEIGHT, Result
from rlscaler_rl.simulation.scenario import Scenarios, build
from rlscaler_rl.simulation.scenario_buffer import ChunkedSource
from rlscaler_rl.simulation.tables import CVS
from rlscaler_rl.workloads import PATTERNS, Part, TraceLoads, episodes
from rlscaler_rl.workloads.names import DRIFT, ERRORS
from rlscaler_rl.workloads.uncertain import uncertain

DRAWS = 8
"""The most times that a block is played, each with other arrivals and cold starts."""

NOMINAL_COST = 6.25
"""GPU replica equivalents that carry the demo's peak of 100 requests/s at 80 %; `LATE_WEIGHT` is relative to it."""

NOMINAL_OBJECTIVE = 99.0
"""% of the requests in time at which lateness has the general weight."""

ERROR = 0.1
"""Relative error of SLO, prices and mean cold starts around the policy's."""


def part_episodes(service: Service, history: History, part: Part, wanted: int, seed: int) -> tuple[Scenarios, int]:
    """About `wanted` episodes of a part at its own scale, and in how many runs; every run plays every block once."""
    blocks = min(history.blocks(part, service), wanted)
    runs = min(max(wanted // blocks, 1), DRAWS)
    rows = episodes(
        history.recording,
        part,
        runs=runs,
        episodes=blocks,
        seed=seed,
        duration_seconds=service.episode_seconds,
        interval_seconds=float(service.interval),
        high=history.recording.reference,
        **service.columns(),
    )
    # Its scrapes are the service's own, and its capacity is as uncertain as any declared number.
    return service.bind(uncertain(rows, scrape=None)), runs


def replayed(rows: Scenarios, runs: int) -> tuple[int, ...]:
    """(N,) which block of the history every row of `part_episodes` replays; two idle nights are two."""
    return tuple(np.tile(np.arange(len(rows) // runs), runs).tolist())


@dataclass(frozen=True, slots=True)
class Score:
    """J of an episode of one service: cost in the demo's size + late_weight x percent late."""

    size: float
    """`NOMINAL_COST` over the cost of the history's peak here: the same trade-off for a service of any size."""

    late_weight: float
    """Weight of one percent. slo.objective 99 gives the general weight; half the error budget, twice the weight."""

    def j(self, result: Result) -> Float:
        """(N,); lower is better."""
        return np.asarray(self.size * result.cost + self.late_weight * result.late_percent)

    def reward(self, spent: objectives.Counters, norms: objectives.Norms, changed: Float) -> Float:
        """(N,) minus an interval's share of J, and a small price on changes; an `objectives.Objective`."""
        size = self.size * LATE_WEIGHT / self.late_weight
        scaled = replace(norms, size=np.full(len(norms.size), size))
        return objectives.slo_cost(spent, scaled, changed) * (self.late_weight / LATE_WEIGHT)


def score_of(service: Service, peak_rps: float) -> Score:
    """`peak_rps`: the load that the service is built for, the 99th percentile of its history."""
    mix = cheapest_mix(service.params, np.array([peak_rps / UTILIZATION]))[0]
    cost = float(mix[0] + service.price_ratio * mix[1])
    # Half the error budget makes a late request twice as dear.
    weight = LATE_WEIGHT * (100 - NOMINAL_OBJECTIVE) / (100 - service.objective)
    # A service of any size trades cost for lateness as the demo does at its peak.
    return Score(size=NOMINAL_COST / cost, late_weight=weight)


@dataclass(frozen=True, slots=True)
class Mix:
    """Composition of the training loads; the rest is the recorded train part."""

    pattern_share: float = 0.2
    """Share of drawn patterns between the history's own levels: load shapes that the train part happened not to hold.
    """

    steady_share: float = 0.1
    scale: tuple[float, float] = (0.8, GROWTH)
    """Log-uniform factor on half of the recorded episodes: growth."""

    least_share: float = 0.3
    """Share of the episodes that begin with minReplicas; the others begin with the replicas that the first rate needs
    at a drawn utilization."""

    delay: tuple[int, int] = (0, 5)
    """Seconds by which a scrape is late."""


MIX = Mix()


def lag_seconds(service: Service, mix: Mix = MIX) -> float:
    """Largest age in seconds of the newest sample when the actor acts in training."""
    return float(mix.delay[1] + service.scrape_seconds)


class ServiceSource:
    """An endless supply of episodes of one service; every draw comes from `rng`."""

    def __init__(self, service: Service, history: History, rng: np.random.Generator, mix: Mix = MIX) -> None:
        self.service, self.rng, self.mix = service, rng, mix
        self.recorded = TraceLoads(Part.TRAIN, recordings=[history.recording])
        self.reference = history.recording.reference
        self.levels = np.percentile(history.recording.pieces[Part.TRAIN][0], [1, 50, 100])
        self.take = ChunkedSource(self.draw)

    def draw(self, n: int) -> Scenarios:
        """(n,) episodes."""
        rng, seconds = self.rng, self.service.episode_seconds
        rate, names = self._loads(n, seconds)
        columns = {
            **self._constants(n),
            "pattern": names,
            "seed": np.zeros(n),
            "duration": seconds,
            "rate": rate.astype(np.float32),
            "arrivals": rng.poisson(rate).astype(np.float32),
            # One episode in ten begins as after a restart, with no load before it.
            "past_rate": np.where(rng.random(n) < 0.1, 0.0, rate[:, 0]),
            "interval_seconds": float(self.service.interval),
            "key": rng.integers(0, 2**63, n, dtype=np.uint64),
        }
        rows = self.service.bind(build(n, columns))
        need = rate[:, 0] / rng.uniform(0.5, 0.95, n)
        mix = cheapest_mix(rows.params(), need)
        rows.initial[:] = np.where(rng.random((n, 1)) < self.mix.least_share, rows.min_replicas, mix)
        return rows

    def _constants(self, n: int) -> dict[str, Any]:
        """The service's columns; those that were measured are off by up to `ERROR`."""
        rng, known = self.rng, self.service.columns()
        believed = np.broadcast_to(known["rps"], (n, 2))
        cold = 1 + rng.uniform(-ERROR, ERROR, (n, 2))
        # The actor tells an absent pool by its 0 replicas, so a pool that is there never has none in training.
        least = np.where(known["present"], np.maximum(known["min_replicas"], 1), 0)
        return {
            **known,
            "min_replicas": np.minimum(least, known["max_replicas"]),
            "slo_ms": known["slo_ms"] * (1 + rng.uniform(-ERROR, ERROR, n)),
            "price_ratio": known["price_ratio"] * (1 + rng.uniform(-ERROR, ERROR, n)),
            "rps": believed * (1 + rng.uniform(min(ERRORS), max(ERRORS), (n, 2))),
            "believed_rps": believed,
            "drift": DRIFT * (rng.random((n, 1)) < 0.5),
            "cold_start_low": known["cold_start_low"] * cold,
            "cold_start_high": known["cold_start_high"] * cold,
            "cv": rng.choice(len(CVS), n, p=[0.15, 0.7, 0.15]),
            "routing": rng.uniform(1.0, 1.5, n),
            "phase": np.floor(rng.random(n) * known["scrape"]),
            "delay": rng.integers(self.mix.delay[0], self.mix.delay[1] + 1, n),
            "noise": rng.uniform(0, 0.05, n),
        }

    def _loads(self, n: int, seconds: int) -> tuple[Float, np.ndarray]:
        """Rates (n, seconds) in requests/s at the history's own scale, and the name of each row's load."""
        rng, mix = self.rng, self.mix
        low, high = (float(np.log(bound)) for bound in mix.scale)
        factor = np.where(rng.random(n) < 0.5, 1.0, np.exp(rng.uniform(low, high, n)))
        drawn = self.recorded.draw(n, seconds, rng) * (factor * self.reference)[:, None]
        names = np.full(n, "trace", "<U16")
        kind = rng.random(n)
        steady = np.flatnonzero(kind < mix.steady_share)
        drawn[steady] = rng.uniform(0, self.levels[2], len(steady))[:, None]
        names[steady] = "steady"
        # One draw decides the kind of a row, so that the shares of kinds add up to at most one.
        pattern = np.flatnonzero((kind >= mix.steady_share) & (kind < mix.steady_share + mix.pattern_share))
        if len(pattern):
            chosen = rng.choice(PATTERNS, len(pattern)).tolist()
            drawn[pattern], names[pattern] = self._patterns(chosen, seconds), chosen
        return drawn, names

    def _patterns(self, names: list[str], seconds: int) -> Float:
        rng, n = self.rng, len(names)
        lowest, middle, highest = self.levels
        low = rng.uniform(lowest, max(middle, lowest + 1e-9), n)
        high = low + (highest - low) * rng.uniform(0.3, 1.2, n)
        period = np.exp(rng.uniform(np.log(120), np.log(1200), n))
        shape = rates(names, seconds, rng, n, low=0.0, high=1.0, start=0.0, phase=rng.random(n), period_s=period)
        return np.asarray(low[:, None] + (high - low)[:, None] * shape)
