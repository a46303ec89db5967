"""Sentences of the demo: a decision, a change of replicas, the result of two copies of one service."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlscaler_dev.demo.settings import CPU_POOL, GPU_POOL, POOLS, Pool
from rlscaler_dev.demo.timeline import Timeline

if TYPE_CHECKING:
    from rlscaler_dev.demo.records import Run
    from rlscaler_dev.demo.tails import DecisionLine

LIKELY = 0.1
"""Probability from which on an expected jump of the load is said."""

JUMP_RATIO = 2.0
"""Ratio of the load to that of `JUMP_SECONDS` before, from which on it jumps."""

JUMP_SECONDS = 5


def action_words(decision: DecisionLine) -> str:
    """Return the decision in words: the change of replicas, the jump that it expects, headroom and plan,
    the guards that changed it.

    The only place where an action is put into words.
    """
    parts = [change_words(decision.base, decision.desired) or "keeps the replicas"]
    if decision.jump >= LIKELY:
        parts.append(f"expects a jump of the load within a minute ({100 * decision.jump:.0f} %)")
    if decision.headroom:
        parts.append(decision.headroom)
    return "; ".join([*parts, *(guard for guard in decision.guards if not _idle(guard))])


def _idle(guard: str) -> bool:
    """Return whether a guard only kept the policy's bounds, which cut nearly every plan and explain nothing."""
    return guard.startswith("limits ") or " 0→" in guard


def change_words(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Return a change of replicas as `orders 2 GPU and 1 CPU`; empty where nothing changes."""
    changes = {pool.upper(): after[pool] - before[pool] for pool in POOLS if pool in before and pool in after}
    parts = []
    for verb, sign in (("orders", 1), ("gives back", -1)):
        counts = [f"{abs(change)} {pool}" for pool, change in changes.items() if change * sign > 0]
        if counts:
            parts.append(f"{verb} {' and '.join(counts)}")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Reaction:
    """Seconds from the jump of the load; NaN = not while it was high."""

    ordered: float
    """Until the first additional replica was ordered."""
    carried: float
    """Until the replicas that stood ready carried the load."""


def ready_capacity(timeline: Timeline, gpu: Pool = GPU_POOL, cpu: Pool = CPU_POOL) -> Any:
    """Return the requests/s (n,) that the ready replicas carry at full utilization."""
    declared = timeline.gpu_ready * gpu.requests_per_second + timeline.cpu_ready * cpu.requests_per_second
    return declared * timeline.capacity_ratio


def jump_second(timeline: Timeline) -> int | None:
    """Return the second in which the load jumps; None where it does not."""
    load = timeline.offered_rps
    before = np.append(np.full(JUMP_SECONDS, np.inf), load)[: len(load)]
    rises = np.flatnonzero(load >= JUMP_RATIO * np.maximum(before, 1.0))
    return int(rises[0]) if len(rises) else None


def reaction(timeline: Timeline) -> Reaction | None:
    """Return how fast the contender answered the first jump of the load; None where there is none."""
    jump = jump_second(timeline)
    if jump is None:
        return None
    ordered = timeline.gpu_spec + timeline.cpu_spec
    load = timeline.offered_rps[jump:]
    over = np.flatnonzero(load < load[0] / JUMP_RATIO)
    high = slice(jump, jump + int(over[0]) if len(over) else None)
    more = np.flatnonzero(ordered[high] > ordered[jump])
    enough = np.flatnonzero(ready_capacity(timeline)[high] >= timeline.offered_rps[high])
    return Reaction(*(float(seconds[0]) if len(seconds) else math.nan for seconds in (more, enough)))


def sentence(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return GPU-hours and late requests of both copies; `summaries` are by the name of the copy."""
    hpa, policy = (used(summaries[name]) for name in ("hpa", "rlscaler"))
    requests = summaries["rlscaler"]["requests"]
    return f"Of {requests:,} requests rlscaler answered {policy}; the HPA {hpa}."


def used(summary: Mapping[str, Any]) -> str:
    """Return late requests and GPU-hours of one run."""
    late = summary["slo_violation_ratio"]
    share = "none" if late is None else f"{100 * late:.1f} %"
    return f"{share} late or not at all, with {summary['gpu_replica_seconds'] / 3600:.2f} GPU-hours"


def capacity_sentence(run: Run, believed: float | None, gpu: Pool = GPU_POOL) -> str:
    """Return the sentence on a capacity that is not as declared; empty where it is."""
    if not run.capacity_error:
        return ""
    begin = f"From second {run.capacity_error_after:g} on" if run.capacity_error_after else "All the time"
    direction = "less" if run.capacity_error < 0 else "more"
    declared = gpu.requests_per_second
    text = f"{begin} a replica answers {abs(run.capacity_error):g} % {direction} than the policy declares"
    true = declared * (1 + run.capacity_error / 100)
    if believed is None:
        return f"{text}."
    return f"{text}: {true:.3g} requests/s a GPU replica, declared {declared:.3g}, measured by rlscaler {believed:.3g}."


def cold_sentence(timelines: Mapping[str, Timeline], gpu: Pool) -> str:
    """Return the sentence on both reactions to a jump that nothing announced; empty where the load does not jump."""
    reactions = {name: reaction(timeline) for name, timeline in timelines.items()}
    if None in reactions.values():
        return ""
    low, high = gpu.cold_start_seconds
    begin = (
        f"Nobody can serve a jump that nothing announced: a GPU pod takes {low:g} to {high:g} s to start. What differs:"
    )
    names = {"rlscaler": "rlscaler", "hpa": "the HPA"}
    return f"{begin} {'; '.join(_reacted(names[n], r) for n, r in reactions.items() if r is not None)}."


def _reacted(name: str, seconds: Reaction) -> str:
    ordered = "ordered nothing" if math.isnan(seconds.ordered) else f"ordered after {seconds.ordered:.0f} s"
    carried = "never carried it" if math.isnan(seconds.carried) else f"carried it after {seconds.carried:.0f} s"
    return f"{name} {ordered} and {carried}"
