"""The causal planner: what planning is worth to one who knows the past of a load and nothing of its future.

It draws futures from the past (`futures`), finds the next step of least expected J (`expected`), takes it, and plans
anew. The service itself is known to it: prices, cold starts in the mean, and how late a constant load is (`late`). It
has no shield and no floor. Where it stands between the best autoscaler and perfect foresight says how much of their
distance is there to be won, and how much is the price of not knowing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.forecaster.outlook import daily_mean
from rlscaler_core.decision.types import GPU, Float, Int, Params, Samples, State
from rlscaler_rl.baselines.contender import PeriodicContender
from rlscaler_rl.planning.expected import Decision, cheapest_step, horizon_stages
from rlscaler_rl.planning.futures import KnownPast, coming_jumps
from rlscaler_rl.planning.late import LateTable
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.simulation.episode import LATE_WEIGHT

LEAST_MEAN = 1e-3
"""Requests/s below which the mean of a day is not believed."""


@dataclass(frozen=True, slots=True)
class CausalSettings:
    """How it plans."""

    period_seconds: float | None = None
    """Seconds between two plans, a multiple of the sensing tick; None: the action interval."""

    futures: int = 100
    """Futures that are drawn for a plan."""

    caution: float = 1.0
    """Factor on the price of a late request."""


@dataclass(frozen=True, slots=True)
class KnownService:
    """What is known of one service before its day begins."""

    history: Float  # (T,) requests/s as measured at every sensing tick until then
    table: LateTable
    seed: int  # of the futures that are drawn


class CausalPlanner(PeriodicContender):
    """Plans N services side by side; a plan of one does not depend on the others."""

    knows_past = True

    def __init__(self, services: Sequence[KnownService], settings: CausalSettings | None = None) -> None:
        """One service for each of the episodes that it will play, in their order."""
        self.services, self.settings = services, settings or CausalSettings()
        self.period_seconds = self.settings.period_seconds

    def reset(self, params: Params) -> None:
        super().reset(params)
        self.lead = np.ceil(np.nan_to_num(params.cold_start_seconds) / SENSE_SECONDS).astype(np.int64)
        self.period = int(self.timer.period_seconds[0]) // SENSE_SECONDS
        self.unit = SENSE_SECONDS * params.cost_per_hour / params.cost_per_hour[:, [GPU]]
        self.order = np.argsort(-self.lead, axis=1, kind="stable")
        self.starting = Starting(self.lead)
        self.waiting = np.zeros(len(params))
        self.draws = [np.random.default_rng(service.seed) for service in self.services]
        leads = np.take_along_axis(self.lead, self.order, axis=1)
        self.stages = [horizon_stages((int(slow), int(quick)), self.period) for slow, quick in leads]
        known = zip(self.services, self.stages, self.draws, strict=True)
        self.pasts = [KnownPast.of(service.history, stages, rng) for service, stages, rng in known]
        self.begin: Float | None = None

    def watch(self, samples: Samples) -> None:
        """Note what has become ready, what waits, and who should answer."""
        if self.begin is None:
            self.begin = samples.time.copy()
        ready = samples.ready_replicas
        self.starting.tick(ready, samples.spec_replicas)
        capacity = (ready * np.where(self.params.present, self.params.requests_per_second, 0.0)).sum(axis=1)
        surplus = self.waiting + (samples.arrival_rate - capacity) * SENSE_SECONDS
        self.waiting = np.clip(surplus, 0.0, capacity * SENSE_SECONDS)
        load = samples.arrival_rate + self.waiting / SENSE_SECONDS
        self.placement = np.array(
            [
                service.table.best_placement(float(load[row]), int(ready[row, 0]), int(ready[row, 1]))
                for row, service in enumerate(self.services)
            ],
            np.int32,
        )

    def size(self, samples: Samples, state: State) -> Int:
        """Give the replicas (N, 2) that the cheapest plan asks for now."""
        mean, _ = daily_mean(state.load_recent)
        late_price = self.settings.caution * 100 * LATE_WEIGHT / np.maximum(mean, LEAST_MEAN)
        asked = np.stack(
            [self._asked(row, samples, state, float(late_price[row])) for row in range(len(self.services))]
        )
        self.starting.order(samples.ready_replicas, asked)
        return asked

    def _asked(self, row: int, samples: Samples, state: State, late_price: float) -> Int:
        table, (slow, quick) = self.services[row].table, self.order[row]
        pools = (table.gpu, table.cpu)
        fewest = [int(pool[0]) for pool in pools]
        ready = [
            int(np.clip(count - pool[0], 0, len(pool) - 1))
            for count, pool in zip(samples.ready_replicas[row], pools, strict=True)
        ]
        lead = (int(self.lead[row, slow]), int(self.lead[row, quick]))
        late = SENSE_SECONDS * table.late_rate(self._futures(row, samples, state, lead[1] + self.period))
        decision = Decision(
            late=late if slow == GPU else late.swapaxes(2, 3),
            late_price=late_price,
            unit=(float(self.unit[row, slow]), float(self.unit[row, quick])),
            fewest=(fewest[slow], fewest[quick]),
            ready=(ready[slow], ready[quick]),
            starting=self.starting.stages(row, self.stages[row])[[slow, quick]],
            lead=lead,
            period=self.period,
        )
        asked = np.empty(2, np.int32)
        asked[[slow, quick]] = cheapest_step(decision)[1] + np.array(decision.fewest)
        return asked

    def _futures(self, row: int, samples: Samples, state: State, soon: int) -> Float:
        """Draw futures (S, K) in requests/s; what waits now is worked off within the stages that come `soon`."""
        now, begin = float(samples.time[row]), self.begin
        since = now - float(begin[row]) if begin is not None else 0.0
        drawn = self.pasts[row].futures(state.rate_value[row], since, self.settings.futures)
        calendar = state.load_calendar[[row]]
        drawn *= coming_jumps(calendar, now, len(drawn), drawn.shape[1], self.draws[row])
        drawn[:, :soon] += self.waiting[row] / (soon * SENSE_SECONDS)
        return drawn


class Starting:
    """Replicas (N, 2) that were ordered and are not ready, by the stages that are left of a mean cold start."""

    def __init__(self, lead: NDArray[np.int64]) -> None:
        """`lead` (N, 2) in stages."""
        self.lead = np.maximum(lead, 1)
        self.left = np.zeros((*lead.shape, int(self.lead.max()) + 1), np.int64)

    def tick(self, ready: Int, asked: Int) -> None:
        """Let a stage pass. What has become ready leaves, and what should have is expected in the next stage."""
        overdue = self.left[..., 1].copy()
        self.left[..., :-1] = self.left[..., 1:]
        self.left[..., -1] = 0
        self.left[..., 0] = 0
        self.left[..., 1] += overdue
        self.order(ready, asked, newest_first=False)

    def order(self, ready: Int, asked: Int, newest_first: bool = True) -> None:
        """Keep as many as `asked` (N, 2) needs beside those `ready`; new ones begin, or the newest or oldest leave."""
        wanted = np.maximum(asked - ready, 0).astype(np.int64)
        left = self.left if newest_first else self.left[..., ::-1]
        kept = np.diff(np.minimum(left.cumsum(axis=2), wanted[..., None]), axis=2, prepend=0)
        self.left = kept if newest_first else kept[..., ::-1].copy()
        missing = wanted - self.left.sum(axis=2)
        place = self.lead[..., None]
        np.put_along_axis(self.left, place, np.take_along_axis(self.left, place, axis=2) + missing[..., None], axis=2)

    def stages(self, row: int, count: int) -> NDArray[np.int64]:
        """Give how many become ready at the begin of each of the next `count` stages, (2, count)."""
        coming = np.zeros((2, count), np.int64)
        width = min(count, self.left.shape[2])
        coming[:, :width] = self.left[row, :, :width]
        return coming
