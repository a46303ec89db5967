"""The Knative Pod Autoscaler, one revision per pool.

Two windows over a metric that all pods of the revision share: the stable one sizes the revision, the panic one, a tenth
as long, takes over while it wants twice the ready pods, and until then on nothing is scaled down for a stable window.
Both are bounded by rates relative to the ready pods; a scale-down may be delayed. Source:
https://knative.dev/docs/serving/autoscaling/kpa-specific/ and knative/serving/pkg/autoscaler/scaling
(`autoscaler.Scale`). Differences: it looks every 5 s, the simulator's sensing tick, not every 2 s, at Prometheus' rate,
not at the reports of its own queue proxies; and it never goes below the policy's minReplicas, so scale-to-zero and the
activator's burst capacity are not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Float, Int, Params, Placement, Samples, State
from rlscaler_rl.baselines.behavior import SlidingWindow
from rlscaler_rl.baselines.contender import Pair, PeriodicContender, Value, column, pools

RPS, CONCURRENCY = 0, 1
"""`autoscaling.knative.dev/metric`: requests a second that reach the pool, or busy replicas (requests that wait are
not seen by the sensors, so they do not count)."""


@dataclass(frozen=True, slots=True)
class KpaSettings:
    """The keys of `config-autoscaler` and of the per-revision annotations; defaults are Knative's own."""

    metric: Value = RPS
    target: Pair = 0.7
    """target-utilization-percentage, as a fraction of the capacity of one replica."""

    stable_window_seconds: Value = 60.0
    panic_window_percentage: Value = 10.0
    panic_threshold_percentage: Value = 200.0
    max_scale_up_rate: Value = 1000.0
    max_scale_down_rate: Value = 2.0
    scale_down_delay_seconds: Value = 0.0
    min_scale: Pair = 0
    """Replicas that raise the policy's own minimum."""

    placement: Value = Placement.BALANCED


class Decider:
    """Pods for the observed metric; keeps the panic mode and the delayed scale-downs. N revisions (x pools) at once."""

    def __init__(self, settings: KpaSettings, ready: Int, now: float) -> None:
        """Starts in panic mode, and so without scaling down, where more than one pod is ready."""
        self.settings = settings
        self.panic_since: Float = np.where(ready > 1, now, np.nan)
        self.panic_pods: Int = np.array(ready, dtype=np.int32)
        self.wanted = SlidingWindow(float(np.max(settings.scale_down_delay_seconds)))

    def scale(self, now: float, ready: Int, stable: Float, panic: Float, target: Pair) -> Int:
        """Desired pods. `stable`, `panic`: the metric summed over the pods, averaged over either window; `target` a
        pod. All of one shape with N rows. NaN: no data, -1.
        """
        chosen = self.settings
        # Rates of change are relative to the ready pods, one at least, so that a revision without any can grow.
        pods = np.maximum(ready, 1)
        highest = np.ceil(np.round(column(chosen.max_scale_up_rate, pods) * pods, 9))
        lowest = np.floor(np.round(pods / column(chosen.max_scale_down_rate, pods), 9))
        known = np.isfinite(stable) & np.isfinite(panic)
        in_stable, in_panic = (np.ceil(np.round(np.nan_to_num(value) / target, 9)) for value in (stable, panic))
        desired = np.minimum(np.maximum(in_stable, lowest), highest)
        hurried = np.minimum(np.maximum(in_panic, lowest), highest)

        over = known & (100 * in_panic / pods >= column(chosen.panic_threshold_percentage, pods))
        ended = known & ~over & (now > self.panic_since + column(chosen.stable_window_seconds, pods))
        self.panic_since = np.where(over, now, np.where(ended, np.nan, self.panic_since))
        panicking = np.isfinite(self.panic_since)
        # In panic mode pods only go up: the highest count of the mode stays until it has ended.
        raised = np.maximum(np.maximum(desired, hurried), self.panic_pods)
        self.panic_pods = np.where(known, np.where(panicking, raised, 0), self.panic_pods).astype(np.int32)
        desired = np.where(panicking, raised, desired)
        return np.where(known, self._delayed(now, desired), -1).astype(np.int32)

    def _delayed(self, now: float, desired: Float) -> Float:
        """The most that was desired within the scale-down delay."""
        delay = self.settings.scale_down_delay_seconds
        if not np.any(np.asarray(delay) > 0):
            return desired
        earlier = self.wanted.since(now - np.asarray(delay), 0)
        self.wanted.add(now, desired.astype(np.int32))
        return np.asarray(np.maximum.reduce([*earlier, desired]), np.float64)


class Kpa(PeriodicContender):
    """One `Decider` for all pools of all episodes; both windows are averages over the sensing ticks in them."""

    period_seconds = 5.0
    own_metrics = True

    def __init__(self, settings: KpaSettings | None = None) -> None:
        self.settings = settings or KpaSettings()
        self.split, self.min_replicas = self.settings.placement, self.settings.min_scale

    def reset(self, params: Params) -> None:
        super().reset(params)
        self.decider: Decider | None = None
        self.stable = np.asarray(self.settings.stable_window_seconds, np.float64)
        # A panic window below a period would hold no sample.
        self.panic = np.maximum(self.stable * np.asarray(self.settings.panic_window_percentage) / 100, self.period)
        self.seen = SlidingWindow(float(np.max(self.stable)))
        by_rate = column(np.asarray(self.settings.metric) == RPS)
        self.target = pools(self.settings.target, len(params)) * np.where(by_rate, params.requests_per_second, 1.0)

    @property
    def period(self) -> float:
        return float(self.period_seconds or 0.0)

    def size(self, samples: Samples, state: State) -> Int:
        now, ready = float(samples.time[0]), samples.ready_replicas
        if self.decider is None:
            self.decider = Decider(self.settings, ready, now)
        self.seen.add(now, self._metric(samples, state))
        stable, panic = self._mean(now, self.stable), self._mean(now, self.panic)
        desired = self.decider.scale(now, ready, stable, panic, self.target)
        return np.where(desired >= 0, desired, samples.spec_replicas).astype(np.int32)

    def _metric(self, samples: Samples, state: State) -> Float:
        """(N, 2) over all replicas of a pool: requests/s that reach it, or how many are busy."""
        rate = samples.arrival_rate[:, None] * state.weights / 1000.0
        busy = np.stack([samples.gpu_utilization, samples.cpu_utilization], axis=1) / 100 * samples.ready_replicas
        idle = samples.ready_replicas == 0
        return np.where(column(np.asarray(self.settings.metric) == RPS), rate, np.where(idle, 0.0, busy))

    def _mean(self, now: float, window: Float) -> Float:
        """(N, 2) over the ticks of the last `window` () or (N,) seconds that measured something; NaN if none did."""
        values = np.stack(self.seen.since(now - window, np.nan))
        measured = np.isfinite(values)
        count = measured.sum(axis=0)
        mean = np.where(measured, values, 0.0).sum(axis=0) / np.maximum(count, 1)
        return np.where(count > 0, mean, np.nan)
