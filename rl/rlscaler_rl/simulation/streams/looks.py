"""Looks at simulated groups: the offsets that a broker shows, and the samples that an autoscaler makes of them."""

from __future__ import annotations

from collections import deque

import numpy as np

from rlscaler_core.decision.tables import make_samples
from rlscaler_core.decision.types import Bool, Float, Int, Samples
from rlscaler_core.streams import Look, Measured
from rlscaler_rl.simulation.streams.groups import Groups
from rlscaler_rl.simulation.streams.state import BROKER_SHARES, NEVER, RUNNING, STARTING, State, running_owner, settled

USAGE_SECONDS = 15.0
"""metrics-server means the CPU usage of pods over this long."""


def look(groups: Groups, state: State) -> Look:
    """Look at the broker: whole offsets, and the members as the group's coordinator lists them.

    While a group of the classic protocol rebalances, the owners of partitions are unknown.
    """
    there = np.arange(groups.share.shape[1]) < groups.partitions[:, None]
    stable = settled(groups, state)
    told = running_owner(state) & (stable | BROKER_SHARES[groups.protocol])[:, None]
    owner = np.take_along_axis(state.number, np.maximum(state.owner, 0), axis=1)
    return Look(
        time=state.time.copy(),
        there=there,
        renewed=np.zeros_like(there),
        start=np.where(there, 0.0, np.nan),
        end=np.where(there, np.floor(state.end), np.nan),
        committed=np.where(there, np.floor(state.committed), np.nan),
        owner=np.where(told, owner, -1).astype(np.int32),
        members=(state.member | (state.asked < NEVER)).sum(axis=1).astype(np.int32),
        ready=(state.pod == RUNNING).sum(axis=1).astype(np.int32),
        stable=stable,
        earliest=np.ones(len(groups), np.bool_),
    )


class Usage:
    """The consumers' use of the CPU that they request, in % over the last `USAGE_SECONDS`."""

    def __init__(self) -> None:
        self._seen: deque[tuple[Float, Float, Float]] = deque()

    def percent(self, groups: Groups, state: State) -> Float:
        """(N,) now; NaN where no consumer ran. A consumer uses all of its request while it works."""
        self._seen.append((state.time.copy(), state.worked / groups.rate, state.ready_seconds.copy()))
        while len(self._seen) > 1 and self._seen[1][0][0] <= state.time[0] - USAGE_SECONDS:
            self._seen.popleft()
        worked, ready = (self._seen[-1][i] - self._seen[0][i] for i in (1, 2))
        return np.where(ready > 0, 100 * worked / np.where(ready > 0, ready, 1.0), np.nan)


def samples_of_measured(groups: Groups, state: State, usage: Float, measured: Measured) -> Samples:
    """Samples that the operator makes of a `measured` look: production is the load, the lag in seconds the latency."""
    return _samples(
        state,
        usage,
        arrival_rate=measured.production,
        p95_ms=1000 * measured.lag_seconds,
        lag_messages=measured.lag_messages,
        partitions=np.maximum(measured.with_traffic, 1),
        settling=measured.settling,
        processed=measured.processed,
        paused_scale_down=~measured.certain,
    )


def samples_of_commits(groups: Groups, state: State, usage: Float) -> Samples:
    """Samples of an autoscaler that subtracts the commits from the ends, as KEDA's scaler does."""
    lag = np.floor(state.end) - np.floor(state.committed)
    return _samples(state, usage, lag_messages=lag.sum(axis=1), partitions=groups.partitions)


def _samples(state: State, usage: Float, **columns: Float | Int | Bool) -> Samples:
    """Samples in which the consumers are the CPU pool."""
    starting = state.pod == STARTING
    oldest = np.where(starting, state.ordered_at, NEVER).min(axis=1)
    pending = np.where(starting.any(axis=1), state.time - np.where(starting.any(axis=1), oldest, 0.0), 0.0)
    ready = (state.pod == RUNNING).sum(axis=1)
    none = np.zeros(len(state), np.int32)
    return make_samples(
        len(state),
        time=state.time,
        cpu_utilization=usage,
        spec_replicas=np.stack([none, state.target], axis=1),
        ready_replicas=np.stack([none, ready], axis=1),
        pending_seconds=np.stack([none, pending], axis=1),
        stuck_replicas=0,
        **columns,
    )
