"""The virtual service: its cost, and its number of late requests.

A small fluid model of two pools under measured arrivals, N services at a time. `Fleet` holds replicas that exist only
here: requested replicas become ready one cold start later. `Meter` counts the requests that a number of ready replicas,
real or virtual, answers in time. Judging a policy in Shadow runs the meter twice, over the virtual and over the real
replicas, so an error of the model is on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlscaler_core.decision.action import traffic_weights
from rlscaler_core.decision.types import Bool, Float, Int, Params, Placement, Rows, total
from rlscaler_core.queueing.histogram import quantile
from rlscaler_core.queueing.latency import USUAL_SPREAD, relaxation_rate, slower_behind, slower_than

BATCHES = 16
"""Scale-ups per pool that may be starting at a time; further ones join the newest."""

RELATIVE_BOUNDS = np.array(
    [0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0]
)
"""Bounds of the latency histogram, in SLOs."""

AT_SLO = int(np.flatnonzero(RELATIVE_BOUNDS == 1.0)[0])

PATIENCE = 5.0
"""A request that would wait longer than this many SLOs is given up: it is late, and leaves the queue."""

STEP_SECONDS = 5.0
MOST_STEPS = 12
"""Time passes in steps of `STEP_SECONDS` or less, yet in no more than so many: more than a minute in coarser ones."""

SECONDS_AN_HOUR = 3600.0


@dataclass(slots=True)
class Fleet(Rows):
    """Replicas that exist in the model only."""

    spec: Int  # (N, 2) asked for
    ready: Int  # (N, 2)
    ready_at: Float  # (N, 2, BATCHES) when replicas that start will be ready, oldest first; infinite = empty
    starting: Int  # (N, 2, BATCHES) how many


@dataclass(slots=True)
class Meter(Rows):
    """Cost and answers of a service since it was first metered, and its requests under way."""

    seconds: Float  # (N,)
    cost: Float  # (N,) currency units
    requests: Float  # (N,) arrived
    late: Float  # (N,) of them answered after the SLO, given up, or met by no ready replica
    answered: Float  # (N, len(RELATIVE_BOUNDS) + 1) within each bound (cumulative), the last all
    recent: Float  # (N, len(RELATIVE_BOUNDS) + 1) the same, older requests fading out with the rate window
    queue: Float  # (N, 2) requests that wait
    slow: Float  # (N, 2, len(RELATIVE_BOUNDS)) share above each bound, on its way to the steady state
    utilization: Float  # (N, 2) fraction of the ready replicas' capacity in use in the last step; NaN = none ready


@dataclass(slots=True)
class Running(Rows):
    """Replicas as a meter reads them at one moment."""

    spec: Int  # (N, 2) paid for
    ready: Int  # (N, 2)
    share: Float  # (N, 2) of the arrivals, any scale; a pool without a ready replica gets none


def initial_fleet(spec: Int, ready: Int, now: Float, cold_start_seconds: Float) -> Fleet:
    """Make N rows with `spec` (N, 2) replicas of which `ready` are ready; the others begin to start at `now` (N,)."""
    fleet = Fleet(
        spec=np.array(spec, np.int32),
        ready=np.minimum(ready, spec).astype(np.int32),
        ready_at=np.full((len(spec), 2, BATCHES), np.inf),
        starting=np.zeros((len(spec), 2, BATCHES), np.int32),
    )
    missing = fleet.spec - fleet.ready
    fleet.starting[:, :, 0] = missing
    fleet.ready_at[:, :, 0] = np.where(missing > 0, now[:, None] + cold_start_seconds, np.inf)
    return fleet


def settle(fleet: Fleet, now: Float) -> Fleet:
    """Count replicas as ready whose cold start is over by `now` (N,), in seconds."""
    done = fleet.ready_at <= now[:, None, None]
    if not done.any():
        return fleet
    ready = fleet.ready + np.where(done, fleet.starting, 0).sum(axis=2, dtype=np.int32)
    order = np.argsort(np.where(done, np.inf, fleet.ready_at), axis=2, kind="stable")
    ready_at = np.take_along_axis(np.where(done, np.inf, fleet.ready_at), order, axis=2)
    starting = np.take_along_axis(np.where(done, 0, fleet.starting), order, axis=2)
    return replace(fleet, ready=ready, ready_at=ready_at, starting=starting)


def scale(fleet: Fleet, desired: Int, now: Float, cold_start_seconds: Float) -> Fleet:
    """Ask for `desired` (N, 2) replicas at `now` (N,). The youngest replicas go first, ready ones last."""
    fleet = settle(fleet, now)
    if (desired == fleet.spec).all():
        return fleet
    existing = fleet.ready + fleet.starting.sum(axis=2, dtype=np.int32)
    surplus = np.maximum(existing - desired, 0)
    starting = fleet.starting.copy()
    for batch in range(BATCHES - 1, -1, -1):
        gone = np.minimum(starting[:, :, batch], surplus)
        starting[:, :, batch] -= gone
        surplus = surplus - gone
    ready_at = np.where(starting > 0, fleet.ready_at, np.inf)
    fresh = np.maximum(desired - existing, 0)
    slot = np.minimum((starting > 0).sum(axis=2), BATCHES - 1)[:, :, None]
    at = (now[:, None] + cold_start_seconds)[:, :, None]
    joined = np.take_along_axis(starting, slot, axis=2) + fresh[:, :, None]
    np.put_along_axis(starting, slot, joined, axis=2)
    chosen = np.where(fresh[:, :, None] > 0, at, np.take_along_axis(ready_at, slot, axis=2))
    np.put_along_axis(ready_at, slot, chosen, axis=2)
    return Fleet(np.array(desired, np.int32), fleet.ready - surplus.astype(np.int32), ready_at, starting)


def running(params: Params, fleet: Fleet, placement: Int) -> Running:
    """Return the ready replicas and weights of a fleet, for a meter; `placement` (N,) is the traffic preference."""
    even = np.full((len(fleet), 2), 500, np.int32)
    weights = traffic_weights(fleet.ready, params.requests_per_second, placement, even)
    return Running(fleet.spec, fleet.ready, weights.astype(np.float64))


def by_capacity(params: Params, ready: Int) -> Float:
    """Return the shares of the traffic (N, 2) where they are not measured: in proportion to the ready capacity."""
    balanced = np.full(len(ready), Placement.BALANCED, np.int32)
    even = np.full((len(ready), 2), 500, np.int32)
    return traffic_weights(ready, params.requests_per_second, balanced, even).astype(np.float64)


def initial_meter(n: int) -> Meter:
    """Make N rows that have counted nothing, with empty queues."""
    bounds = len(RELATIVE_BOUNDS)
    return Meter(
        seconds=np.zeros(n),
        cost=np.zeros(n),
        requests=np.zeros(n),
        late=np.zeros(n),
        answered=np.zeros((n, bounds + 1)),
        recent=np.zeros((n, bounds + 1)),
        queue=np.zeros((n, 2)),
        slow=np.zeros((n, 2, bounds)),
        utilization=np.full((n, 2), np.nan),
    )


def advance(
    params: Params,
    meter: Meter,
    now: Running,
    arrival_rate: Float,
    seconds: Float,
    window_seconds: Float,
    at_once: Float | None = None,
    spread: Float | None = None,
    timed: Float | None = None,
) -> Meter:
    """Let `seconds` (N,) pass under `arrival_rate` (N,) requests/s; rows of 0 seconds stay as they are.

    In the other rows `requests_per_second` of the pools that are there and `arrival_rate` have to be known.
    `window_seconds` (N,) is how long a request counts as recent. `at_once` (N, 2), 1 or more, is how many requests a
    replica works on at a time, by default one: with its capacity as it is, each then takes so many times as long.
    `spread` (N, 2), above 0, is the standard deviation of the logarithm of how long, by default `USUAL_SPREAD`.
    `timed` (N, 2) is the mean of the seconds beside the wait that the latency counts, by default and where NaN all.
    """
    at_once = np.ones_like(params.requests_per_second) if at_once is None else at_once
    spread = np.full_like(params.requests_per_second, USUAL_SPREAD) if spread is None else spread
    timed = np.full_like(params.requests_per_second, np.nan) if timed is None else timed
    steps = np.clip(np.ceil(seconds / STEP_SECONDS), 0, MOST_STEPS).astype(np.int64)
    dt = seconds / np.maximum(steps, 1)
    if not steps.any():
        return meter
    if (steps == 1).all():
        return _step(params, meter, now, arrival_rate, dt, window_seconds, at_once, spread, timed)
    meter = meter.copy()
    for number in range(int(steps.max())):
        rows = np.flatnonzero(steps > number)
        part = _step(
            params.take(rows),
            meter.take(rows),
            now.take(rows),
            arrival_rate[rows],
            dt[rows],
            window_seconds[rows],
            at_once[rows],
            spread[rows],
            timed[rows],
        )
        meter.put(rows, part)
    return meter


def _step(
    params: Params,
    meter: Meter,
    now: Running,
    rate: Float,
    dt: Float,
    window: Float,
    at_once: Float,
    spread: Float,
    timed: Float,
) -> Meter:
    rps = np.where(params.present, params.requests_per_second, 0.0)
    ready = now.ready.astype(np.float64) * params.present
    bounds = params.slo_ms[:, None] / 1000 * RELATIVE_BOUNDS
    offered = rate[:, None] * _shares(now, params.present)
    capacity = rps * ready
    served = capacity > 0
    load = np.divide(offered, capacity, out=np.zeros_like(offered), where=served)
    waiting = meter.queue + offered * dt[:, None]
    through = np.minimum(waiting, capacity * dt[:, None])
    left = waiting - through
    room = capacity * (PATIENCE * params.slo_ms[:, None] / 1000)
    given_up = np.maximum(left - room, 0.0)
    left -= given_up
    backlog = np.divide(0.5 * (meter.queue + left), capacity, out=np.zeros_like(left), where=served)
    # A pool that is not there never answers.
    work = np.divide(at_once, rps, out=np.full_like(rps, np.inf), where=rps > 0)
    seconds = np.where(np.isfinite(timed), timed, work)
    steady = slower_than(bounds, rps, ready, load, at_once, spread, seconds)
    pace = 1.0 - np.exp(-relaxation_rate(params.slo_ms / 1000, rps, ready, load) * dt[:, None])
    slow = meter.slow + (steady - meter.slow) * pace[..., None]
    worst = slow
    jammed = np.flatnonzero(backlog.any(axis=1))
    if jammed.size:
        worst = slow.copy()
        behind = slower_behind(bounds[jammed], backlog[jammed], spread[jammed], seconds[jammed])
        worst[jammed] = np.maximum(slow[jammed], behind)
    within = (through[..., None] * (1.0 - worst)).sum(axis=1)
    count = total(through)
    counted = np.concatenate([within, count[:, None]], axis=1)
    fade = np.exp(-dt / np.maximum(window, 1e-9))[:, None]
    lost = total(given_up) + np.where(served.any(axis=1), 0.0, rate * dt)
    utilization = np.divide(through, capacity * dt[:, None], out=np.full_like(through, np.nan), where=served)
    price = total(now.spec * params.present * params.cost_per_hour)
    return Meter(
        seconds=meter.seconds + dt,
        cost=meter.cost + price * dt / SECONDS_AN_HOUR,
        requests=meter.requests + rate * dt,
        late=meter.late + count - within[:, AT_SLO] + lost,
        answered=meter.answered + counted,
        recent=meter.recent * fade + counted,
        queue=left,
        slow=slow,
        utilization=utilization,
    )


def _shares(now: Running, present: Bool) -> Float:
    """Return the fractions of the arrivals (N, 2); all 0 where no replica is ready."""
    share = np.where((now.ready > 0) & present, np.maximum(now.share, 0.0), 0.0)
    # Traffic that was measured may not be there yet for a pool that has become the only one.
    share = np.where((total(share) <= 0)[:, None], (now.ready > 0) & present, share)
    whole = total(share)[:, None]
    fractions: Float = np.divide(share, whole, out=np.zeros((len(share), 2)), where=whole > 0)
    return fractions


def percentile_ms(counted: Float, slo_ms: Float, percent: float) -> Float:
    """Return a percentile (N,) in milliseconds of histograms (N, len(RELATIVE_BOUNDS) + 1) as in `Meter.answered`.

    `slo_ms` is (N,), `percent` 0 to 100. A latency beyond the last bound counts as that bound; NaN where nothing was
    answered.
    """
    whole = counted[:, -1:]
    shares = np.divide(counted[:, :-1], whole, out=np.zeros((len(counted), len(RELATIVE_BOUNDS))), where=whole > 0)
    ratio = np.minimum(quantile(shares, RELATIVE_BOUNDS, percent / 100), RELATIVE_BOUNDS[-1])
    return np.where(whole[:, 0] > 0, ratio * slo_ms, np.nan)
