"""Flips: the nearest measured values that would have changed the action of the actor. Pure.

Each signal is varied alone over its range and everything that follows from it is observed anew: other arrivals change
the throughput, the load's trend and its variance together, as they would in reality. Trend and variance are varied by
themselves, too, since they are numbers of the observation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import mask_absent
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import Entry
from rlscaler_core.decision.decide import decide, proposed_by
from rlscaler_core.decision.observation import observe, sense, stacked_input
from rlscaler_core.decision.types import CPU, GPU, SIGNALS, Float, Int, Params, Samples, observations

POINTS = 257
"""Values tried at once. The interval in which the answer changes is divided into as many once more."""

Asked = NDArray[np.int64]
"""(N, 3) actions, or (N, 5) with the replicas of the rule that they are added to."""


@dataclass(frozen=True, slots=True)
class Flip:
    """The nearest value of one signal, on one side of the measured value, at which the action is another."""

    signal: str
    measured: float
    value: float
    action: tuple[int, int, int]
    """GPU steps, CPU steps and Placement of the other action."""
    proposal: tuple[int, int]
    """Replicas of the GPU and CPU pool by that action."""
    distance: float
    """Distance between value and measured value, as a share of the signal's range."""


@dataclass(frozen=True, slots=True)
class _Signal:
    """One signal to vary; `ask` maps values (C,) to the actions (C, *) and the proposals (C, 2)."""

    name: str
    measured: float
    low: float
    high: float
    whole: bool
    ask: Callable[[Float], tuple[Asked, Int]]


def find_flips(entry: Entry) -> list[Flip]:
    """Return the flips, nearest first; none where no actor ran, or where no single signal changes the action.

    Unknown signals are left out.
    """
    if entry.actor is None or entry.kind != "action":
        return []
    decided = decide(entry.params, sense(entry.params, entry.state, entry.samples), entry.samples, entry.actor)
    if decided.decision.action[0, 2] < 0:
        return []
    signals = [signal for signal in _signals(entry, entry.actor) if np.isfinite(signal.measured)]
    return sorted((flip for signal in signals for flip in _around(signal)), key=lambda flip: flip.distance)


def _around(signal: _Signal) -> Iterator[Flip]:
    """Yield the flips of one signal, at most one on each side of the measured value."""
    baseline, _ = signal.ask(np.array([signal.measured]))
    for end in (signal.low, signal.high):
        near, far, action, proposal = signal.measured, end, baseline, None
        # The second round divides the interval in which the first one saw the change.
        for _ in range(1 if signal.whole else 2):
            values = _between(near, far, signal.whole)
            if not values.size:
                break
            answers, proposals = signal.ask(values)
            changed = np.flatnonzero((answers != baseline).any(axis=1))
            if not changed.size:
                break
            first = int(changed[0])
            near = values[first - 1] if first else near
            far, action, proposal = values[first], answers[first], proposals[first]
        if proposal is not None:
            yield Flip(
                signal.name,
                signal.measured,
                float(far),
                (int(action[0]), int(action[1]), int(action[2])),
                (int(proposal[GPU]), int(proposal[CPU])),
                abs(float(far) - signal.measured) / max(signal.high - signal.low, 1e-9),
            )


def _between(near: float, far: float, whole: bool) -> Float:
    """Return the values to try, from just beyond `near` to `far`; none where replicas stand at their bound."""
    if whole:
        step = 1 if far > near else -1
        return np.arange(near + step, far + step, step, dtype=np.float64)
    return np.linspace(near, far, POINTS + 1)[1:]


def _signals(entry: Entry, actor: ActorLike) -> Iterator[_Signal]:
    params, samples = entry.params, entry.samples
    for column, low, high in (
        ("arrival_rate", 0.0, _most_arrivals(params, samples)),
        ("cpu_utilization", 0.0, max(150.0, 1.5 * float(samples.cpu_utilization[0]))),
        ("gpu_utilization", 0.0, 100.0),
        ("p95_ms", 0.0, max(10.0 * float(params.slo_ms[0]), 1.5 * float(samples.p95_ms[0]))),
    ):
        measured = float(getattr(samples, column)[0])
        name = _SIGNAL_OF.get(column, column)
        age = float(samples.age_seconds[0, SIGNALS.index(name)])
        if age <= params.max_age_seconds[0]:
            yield _Signal(name, measured, low, high, False, _with_sample(entry, actor, column, None))
    for pool, name in ((GPU, "gpu_replicas"), (CPU, "cpu_replicas")):
        if params.present[0, pool]:
            low, high = float(params.min_replicas[0, pool]), float(params.max_replicas[0, pool])
            measured = float(samples.spec_replicas[0, pool])
            yield _Signal(name, measured, low, high, True, _with_sample(entry, actor, "spec_replicas", pool))
    for name, low in (("load_trend", -1.0), ("near_misses", 0.0), ("load_variance", 0.0)):
        if name not in (names := observations(params)):
            continue
        fed, ask = _with_fed(entry, actor, names.index(name))
        yield _Signal(name, fed, low, 1.0, False, ask)


_SIGNAL_OF = {"p95_ms": "p95_latency"}
"""Columns of `Samples` whose signal has another name."""


def _most_arrivals(params: Params, samples: Samples) -> float:
    capacity = float(np.nansum(params.max_replicas[0] * params.requests_per_second[0] * params.present[0]))
    return float(np.nanmax([10.0, capacity, 2 * float(samples.arrival_rate[0])]))


def _with_sample(entry: Entry, actor: ActorLike, column: str, pool: int | None) -> Callable[[Float], tuple[Asked, Int]]:
    def ask(values: Float) -> tuple[Asked, Int]:
        rows = np.zeros(len(values), np.intp)
        params, state, samples = entry.params.take(rows), entry.state.take(rows), entry.samples.take(rows)
        target = getattr(samples, column)
        target[slice(None) if pool is None else (slice(None), pool)] = values
        decision, _, _ = decide(params, sense(params, state, samples), samples, actor)
        return _asked(actor, decision.action, decision.trail[:, 0])

    return ask


def _with_fed(entry: Entry, actor: ActorLike, number: int) -> tuple[float, Callable[[Float], tuple[Asked, Int]]]:
    """Return the present value of an observation, and a function that maps other values to actions and proposals."""
    sensed = sense(entry.params, entry.state, entry.samples)
    observation, state = observe(entry.params, sensed, entry.samples, actor.manifest.contract)

    def ask(values: Float) -> tuple[Asked, Int]:
        rows = np.zeros(len(values), np.intp)
        params, several, samples = entry.params.take(rows), state.take(rows), entry.samples.take(rows)
        several.stack[:, -1, number] = values
        probabilities = mask_absent(actor.probabilities(stacked_input(several)), params.present)
        proposal, after = proposed_by(actor, several, observation.take(rows), probabilities)
        return _asked(actor, proposal.action, decide(params, after, samples, proposal).decision.trail[:, 0])

    known = np.isfinite(observation.values[0, number])
    return float(observation.fed[0, number]) if known else float("nan"), ask


def _asked(actor: ActorLike, action: Int, proposal: Int) -> tuple[Asked, Int]:
    answer = np.concatenate([action, proposal], axis=1) if actor.manifest.residual else action
    return answer.astype(np.int64), proposal
