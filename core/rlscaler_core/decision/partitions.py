"""Consumers of a stream: the messages they have to process, and the useful numbers of consumers. Pure.

A partition has one consumer of a group, so the assignors give each consumer P / n partitions, rounded up or down. The
busiest one decides how far the group keeps up, and its share changes only where P / n, rounded up, does: with 12
partitions 4 and 5 consumers are equally fast, and more than 12 are of no use.
"""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.situation import Situation
from rlscaler_core.decision.tables import arrivals_known
from rlscaler_core.decision.types import Bool, FallbackBehavior, Float, Int, Params, Samples, either, total

FRESH_SHARE = 0.25
"""Messages that came within this share of the objective are on their way: nothing more is held for them."""

ROUNDING = 1e-9
"""Share of a partition that is ignored when partitions are rounded down, which keeps 1.9999999999 from becoming 1."""


def drain(params: Params, samples: Samples) -> Float:
    """Return the messages/s (N,) beyond production that bring the lag within the objective; 0 for all but streams.

    Capacity for production alone would keep a lag for ever. Messages that wait beyond `FRESH_SHARE` of the objective
    are to be gone within the objective. An unknown lag adds nothing.
    """
    if not params.stream.any():
        return np.zeros(len(params.stream))
    seconds = params.slo_ms / 1000
    with np.errstate(invalid="ignore"):
        excess = samples.lag_messages - FRESH_SHARE * seconds * samples.arrival_rate
    return np.where(params.stream & np.isfinite(excess), np.maximum(excess, 0.0) / seconds, 0.0)


def consumers_for(partitions: Int, load: Float, unit: Float) -> Int:
    """Return the fewest consumers (N,) of which the busiest one carries its share of `load` (N,) messages/s.

    `unit` (N,) is the capacity of one consumer, `partitions` (N,) are equally busy. Where that is not enough, every
    partition has a consumer of its own; 0 where there are no partitions, or load or unit are not known.
    """
    sized = (partitions > 0) & (unit > 0) & np.isfinite(load)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        each = np.where(load > 0, partitions * unit / np.where(load > 0, load, 1.0), np.inf)
    most = np.maximum(partitions, 1)
    # The busiest consumer has ceil(P / n) partitions. All numbers n with the same ceiling carry equally much, so the
    # smallest is taken: a further consumer would cost a rebalance and gain nothing.
    share = np.clip(np.floor(np.where(sized, each, 1.0) + ROUNDING), 1, most).astype(np.int32)
    return np.where(sized, -(-most // share), 0).astype(np.int32)


def to_partitions(params: Params, samples: Samples, load: Float, unit: Float, replicas: Int, limit: Int) -> Int:
    """Return `replicas` (N, 2), for streams as many as `consumers_for` the load (N,), and no more than partitions.

    `unit` (N, 2) is the capacity of a replica; NaN or 0 where it is not known. Nothing is raised beyond `limit` (N, 2).
    """
    if not params.stream.any():
        return replicas
    known = np.where(params.present, np.nan_to_num(unit), 0.0)
    needed = np.minimum(consumers_for(samples.partitions, load, total(known))[:, None], limit)
    sized = np.minimum(np.maximum(replicas, needed), samples.partitions[:, None])
    rows = params.stream & (samples.partitions > 0)
    return np.where(rows[:, None] & params.present, sized, replicas).astype(np.int32)


def keep_partitions(now: Situation, wanted: Int) -> Int:
    """The guard: of the consumers asked for (N, 2) those that make a difference, one rebalance after the other.

    Of further ones the fewest that are as fast, and no more than partitions with messages; none while the group comes
    to rest. Consumers are taken away only at an action, where the lag is known, no pods start, and those that are left
    carry production and lag. Replicas beyond the grant of an RLScalingBudget are given back all the same.
    """
    params, samples, base = now.params, now.samples, now.base
    if not params.stream.any():
        return wanted
    most = np.maximum(samples.partitions, 1)[:, None]
    useful = np.maximum(-(-most // -(-most // np.clip(wanted, 1, most))), np.minimum(wanted, params.min_replicas))
    counted = (samples.partitions > 0)[:, None]
    further = np.where(samples.settling[:, None], base, np.where(counted, np.maximum(useful, base), wanted))
    load = np.where(arrivals_known(params, samples), samples.arrival_rate + drain(params, samples), np.nan)
    needed = consumers_for(samples.partitions, load, total(now.capacity.requests_per_second))
    lowest = np.where((may_lower(now) & (needed > 0))[:, None], np.minimum(base, needed[:, None]), base)
    lowest = np.where(_static(now)[:, None], wanted, np.minimum(lowest, now.limit))
    desired = np.where(wanted > base, further, np.maximum(wanted, lowest))
    return np.where(params.stream[:, None] & params.present, desired, wanted).astype(np.int32)


def may_lower(now: Situation) -> Bool:
    """Return where (N,) consumers may be taken away: the lag is known and no change is under way."""
    params, samples = now.params, now.samples
    if now.doubt is None:
        return np.zeros(len(params.stream), np.bool_)
    starting = either((samples.ready_replicas < now.base) & (samples.pending_seconds <= params.pending_seconds))
    sure: Bool = ~now.doubt.required_unknown & np.isfinite(samples.lag_messages) & ~samples.settling & ~starting
    return sure & (samples.partitions > 0)


def _static(now: Situation) -> Bool:
    """Return where (N,) the fallback sets replicas of the user's own."""
    if now.doubt is None:
        return np.zeros(len(now.params.stream), np.bool_)
    static: Bool = now.doubt.falls_back & (now.params.fallback == FallbackBehavior.STATIC)
    return static
