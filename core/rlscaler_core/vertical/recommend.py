"""Recommended requests of pods, from their usage of late, for all pools of a batch at once. Pure.

The CPU request is a high percentile of the usage, since a container that wants more for a moment is slowed and not
killed. The histogram for it forgets: a sample weighs half as much after HALF_LIFE_SECONDS. The memory request is the
highest usage of a pod within PEAK_SECONDS, since one that wants more is killed, and gets a margin. Requests are raised
at once, and lowered only when a smaller one was enough for SETTLE_SECONDS, so that a size does not follow every change
of the load. Use is counted in bins of shares of the range's `most`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rlscaler_core.decision.types import Bool, Float, Int, Rows

CPU, MEMORY = 0, 1
"""Columns of all arrays here: cores, and bytes."""

BINS = 128

# With bins of 8 % and margins of 15 and 20 %, pods cost 15 to 18 % more than under the VerticalPodAutoscaler.
FIRST, GROWTH = 0.01, 1.04

EDGES: Float = FIRST * GROWTH ** np.arange(BINS, dtype=np.float64)
"""(BINS,) upper edges in shares of `most`; the last is above 1, so that usage beyond the range is counted."""

HALF_LIFE_SECONDS = 6 * 3600.0
PERCENTILE = 0.95
"""Share of the weight that is below the CPU that is asked for."""

PEAK_SECONDS = 30 * 3600.0
"""A day and some hours, so that a need that comes once a day is remembered until it comes again."""

MARGIN: Float = np.array([1.0, 1.15])
"""Margin of the request over the usage, by resource. CPU has none beside rounding up: it follows the pod with the
highest usage."""

SETTLE_SECONDS = 3600.0
"""Time for which a smaller request must have been enough before it is taken."""

STEP_SECONDS = 60.0
"""A remembered time later than now by more than this shows a clock that was set back."""

FEWEST_SAMPLES = 20
"""Samples before anything is recommended."""


@dataclass(slots=True)
class Ranges(Rows):
    """Allowed requests for the pods of N pools; NaN where a resource is not sized."""

    least: Float  # (N, 2)
    most: Float  # (N, 2)
    step: Float  # (N, 2)


@dataclass(slots=True)
class Usage(Rows):
    """Usage of the pods of N pools now; NaN where it is not known."""

    time: Float  # (N,) unix seconds
    used: Float  # (N, 2) of the pod that uses most


@dataclass(slots=True)
class Memory(Rows):
    """Memory of N pools."""

    most: Float  # (N, 2) of the range that the bins are shares of; NaN: none yet
    time: Float  # (N,) unix seconds of the last sample of CPU; NaN: none yet
    samples: Int  # (N, 2) that were taken in, counted up to FEWEST_SAMPLES
    weight: Float  # (N, BINS) of the histogram of CPU, in newest samples
    seen: Float  # (N, BINS) unix seconds at which memory was last in each bin; NaN: never
    size: Float  # (N, 2) that is recommended; NaN: none yet
    smaller_since: Float  # (N, 2) unix seconds since which a smaller size is enough; NaN: it is not


def nothing_known(n: int) -> Memory:
    """Return the memory of N pools of which nothing was seen."""
    none, bins = np.full((n, 2), np.nan), np.zeros((n, BINS))
    return Memory(
        most=none,
        time=np.full(n, np.nan),
        samples=np.zeros((n, 2), np.int32),
        weight=bins,
        seen=np.full_like(bins, np.nan),
        size=none.copy(),
        smaller_since=none.copy(),
    )


def recommend(ranges: Ranges, memory: Memory, usage: Usage) -> Memory:
    """Learn from the usage of the pods; return the memory after it, with the recommended requests (N, 2).

    A resource of which the usage is not known keeps its request. After a range was changed the request is within the
    new one, and where its `most` is another one usage is counted anew. No request is outside of its range, and none is
    NaN again once it was recommended and has a range.
    """
    after = _taken_in(ranges, _counted_anew(ranges, _without_future(memory, usage.time)), usage)
    used = ranges.most * EDGES[np.stack([_percentile(after.weight), _peak(after.seen, usage.time)], axis=1)]
    known = (after.samples >= FEWEST_SAMPLES) & np.isfinite(usage.used)
    return _settled(ranges, after, np.where(known, _stepped(MARGIN * used, ranges), np.nan), usage)


def _without_future(memory: Memory, now: Float) -> Memory:
    """Return `memory` with times after `now` (N,) taken for now: the clock was set back, and they would never age."""
    ahead = now + STEP_SECONDS
    return replace(
        memory,
        time=np.where(memory.time > ahead, now, memory.time),
        seen=np.where(memory.seen > ahead[:, None], now[:, None], memory.seen),
        smaller_since=np.where(memory.smaller_since > ahead[:, None], now[:, None], memory.smaller_since),
    )


def least_memory(ranges: Ranges, memory: Memory, now: Float) -> Float:
    """Return the bytes (N,) below which the pods' memory must not be lowered; NaN where that is not known.

    It is not where too little was seen, nor where pods used more than the last bin holds. `now` (N,) is unix seconds.
    """
    place = _peak(memory.seen, now)
    known = (memory.samples[:, MEMORY] >= FEWEST_SAMPLES) & (place < BINS - 1)
    return np.where(known, EDGES[place] * ranges.most[:, MEMORY] * MARGIN[MEMORY], np.nan)


def _counted_anew(ranges: Ranges, memory: Memory) -> Memory:
    """Forget usage that was counted in shares of another range."""
    other = (ranges.most != memory.most) & ~(np.isnan(ranges.most) & np.isnan(memory.most))
    if not other.any():
        return memory
    return replace(
        memory,
        most=ranges.most.copy(),
        samples=np.where(other, 0, memory.samples).astype(np.int32),
        weight=np.where(other[:, CPU, None], 0.0, memory.weight),
        seen=np.where(other[:, MEMORY, None], np.nan, memory.seen),
        smaller_since=np.where(other, np.nan, memory.smaller_since),
    )


def _taken_in(ranges: Ranges, memory: Memory, usage: Usage) -> Memory:
    """Forget as the time passes, and add the present usage."""
    known: Bool = np.isfinite(usage.used) & np.isfinite(ranges.most) & (usage.used >= 0)
    share = np.where(known, usage.used, 0.0) / np.where(known, ranges.most, 1.0)
    bins = np.minimum(np.searchsorted(EDGES, share), BINS - 1)
    cpu, held = np.flatnonzero(known[:, CPU]), np.flatnonzero(known[:, MEMORY])
    passed = np.maximum(np.nan_to_num(usage.time - memory.time), 0.0)
    weight, seen = memory.weight.copy(), memory.seen.copy()
    weight[cpu] *= 0.5 ** (passed[cpu, None] / HALF_LIFE_SECONDS)
    weight[cpu, bins[cpu, CPU]] += 1.0
    seen[held, bins[held, MEMORY]] = usage.time[held]
    return replace(
        memory,
        time=np.where(known[:, CPU], usage.time, memory.time),
        samples=np.minimum(memory.samples + known, FEWEST_SAMPLES).astype(np.int32),
        weight=weight,
        seen=seen,
    )


def _percentile(weight: Float) -> Int:
    """Return the bin (N,) below whose upper edge PERCENTILE of the weight (N, BINS) is."""
    below = np.cumsum(weight, axis=1)
    number: Int = (below < PERCENTILE * below[:, -1:]).sum(axis=1, dtype=np.int32)
    return np.minimum(number, BINS - 1)


def _peak(seen: Float, now: Float) -> Int:
    """Return the highest bin (N,) that was seen lately, or the last that was seen at all; 0 where none was."""
    with np.errstate(invalid="ignore"):
        newest = np.max(np.where(np.isnan(seen), -np.inf, seen), axis=1, keepdims=True)
        late = np.minimum(now[:, None] - PEAK_SECONDS, newest)
        there = seen >= late
    return np.where(there.any(axis=1), BINS - 1 - np.argmax(there[:, ::-1], axis=1), 0).astype(np.int32)


def _stepped(needed: Float, ranges: Ranges) -> Float:
    """Round up to whole steps, and keep within the range."""
    steps = np.ceil(needed / ranges.step - 1e-9) * ranges.step
    return np.asarray(np.clip(steps, ranges.least, ranges.most))


def _settled(ranges: Ranges, memory: Memory, wanted: Float, usage: Usage) -> Memory:
    """Raise at once, lower when a smaller size was enough for long, and keep where nothing is known."""
    now = np.broadcast_to(usage.time[:, None], wanted.shape)
    size = np.clip(memory.size, ranges.least, ranges.most)
    known = np.isfinite(wanted)
    raised: Bool = known & (np.isnan(size) | (wanted > size))
    smaller: Bool = known & (wanted < size)
    since = np.where(smaller, np.where(np.isnan(memory.smaller_since), now, memory.smaller_since), np.nan)
    since = np.where(known, since, memory.smaller_since)
    lowered = smaller & (now - since >= SETTLE_SECONDS)
    size = np.where(raised | lowered, wanted, size)
    return replace(memory, size=size, smaller_since=np.where(raised | lowered, np.nan, since))
