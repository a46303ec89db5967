"""The load of one service as it was recorded: read, checked against the service's capacity, cut into parts by time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_loadgen.traces import Trace
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.service_tuning.service import Service
from rlscaler_rl.results.statistics import FEWEST_UNITS
from rlscaler_rl.workloads import Part, Recording, WorkloadError, cut
from rlscaler_rl.workloads.recording import FRACTIONS

FEWEST = {Part.TRAIN: 1, Part.TUNE: 1, Part.TEST: FEWEST_UNITS}
"""Episodes that every part must hold for a verdict; with one of each there is at least something to train on."""

OTHER_UNIT = 5.0
"""A 99th percentile this many times the capacity of all replicas is no overload but another unit."""

COUNTER_RISES = 0.99
"""A counter's raw value rises in at least this part of its steps but those of 0; it falls where a process restarts."""

COUNTER_STEPS = 100
"""Steps of a history from which on that is told from a load that rises."""

DAY_SECONDS = 86_400
SMOOTH_RISE = 0.3
"""A load is smooth up to this `rise`: the five recorded and drawn loads that the gate calls smooth have .02 to .19 on
the demo's service, the others .43 to 1.04."""

GROWTH = 1.25
"""Training plays the recorded loads up to this many times as high."""

RISE_PERCENTILE = 99.0
AVERAGED_SECONDS = 15


@dataclass(frozen=True, slots=True)
class History:
    """A recorded load, cut into parts, with its smoothness and caveats."""

    source: str
    digest: str
    recording: Recording
    seconds: int
    smooth: bool
    rise: float
    peaks: dict[Part, float]
    """99th percentile of every part, requests/s."""

    missing_seconds: int
    """Seconds by which the history is too short for a verdict; 0 where it is not."""

    caveats: tuple[str, ...]

    def blocks(self, part: Part, service: Service) -> int:
        return self.recording.count(part, service.episode_seconds)


def prepare(trace: Trace, source: str, service: Service) -> History:
    """Cut and checked. Raises EvaluationError for a history in another unit, too short or without traffic."""
    rate = trace.per_second()
    check_unit(trace, source, f"{service.namespace}/{service.name}", service.capacity)
    _check_length(len(rate), source, service)
    try:
        recording = cut(trace, service.name)
    except WorkloadError as error:
        raise EvaluationError(f"{source}: {error}") from error
    parts = {part: recording.pieces[part][0] for part in Part}
    peaks = {part: float(np.percentile(parts[part], 99)) for part in Part}
    rises = {part: rise(parts[part], service) for part in Part}
    risen = max(rises.values())
    return History(
        source=source,
        digest=trace.digest(),
        recording=recording,
        seconds=len(rate),
        smooth=risen <= SMOOTH_RISE,
        rise=risen,
        peaks=peaks,
        missing_seconds=max(needed_seconds(service, FEWEST) - len(rate), 0),
        caveats=(*_caveats(trace, len(rate), peaks, service), *_unseen(parts, rises)),
    )


def needed_seconds(service: Service, blocks: dict[Part, int]) -> int:
    """Length of a history whose parts hold so many episodes each."""
    return max(int(np.ceil(count * service.episode_seconds / FRACTIONS[part])) for part, count in blocks.items())


def rise(rate: Float, service: Service) -> float:
    """Rise of the load within one interval and one cold start, as a part of its peak: 99 % of the time less.

    From the highest rate of the last minute to the mean of the next interval after the slower pool's cold start,
    because replicas that are ordered now have to carry that load. 0 for a load that never rises.
    """
    step = AVERAGED_SECONDS
    bins = rate[: len(rate) // step * step].reshape(-1, step).mean(axis=1)
    ahead = (service.interval + float(service.params.cold_start_seconds[0].max())) / step
    lead, minute = max(round(ahead), 1), 60 // step
    if len(bins) <= lead + minute:
        return 0.0
    # Every bin is compared with the highest of the minute before it: replicas already stand for that load.
    recent = np.lib.stride_tricks.sliding_window_view(bins, minute).max(axis=1)[:-lead]
    later = bins[minute - 1 + lead :]
    # A silent history has no peak to divide by.
    peak = max(float(np.percentile(bins, RISE_PERCENTILE)), 1e-9)
    return max(float(np.percentile(later - recent, RISE_PERCENTILE)) / peak, 0.0)


def check_unit(trace: Trace, source: str, service: str, capacity: float) -> None:
    """Refuse a history that is not in requests/s.

    :param capacity: requests/s of all replicas of `service`.
    :raises EvaluationError: naming file and remedy, for a counter's raw value, restarts of the counter included, and
    for a load far beyond the capacity.
    """
    peak = trace.percentile(99)
    if peak <= OTHER_UNIT * capacity:
        return
    check_counter(trace, source)
    raise EvaluationError(
        f"{source}: its 99th percentile is {peak:,.0f} and all replicas of {service} "
        f"together carry {capacity:,.0f} requests/s: another unit? The history is in requests per second "
        "(divide counts per minute by 60); if it is, spec.targets.*.maxReplicas or requestsPerSecond is too low"
    )


def check_counter(trace: Trace, source: str) -> None:
    """Refuse a history that almost never falls: no load does that for so many bins. Raises EvaluationError."""
    steps = np.diff(trace.rate)
    moved = int(np.count_nonzero(steps))
    if moved >= COUNTER_STEPS and np.count_nonzero(steps > 0) >= COUNTER_RISES * moved:
        raise EvaluationError(
            f"{source}: almost never falls, so it is a counter's raw value; give rate(...) of it, requests/s"
        )


def _check_length(seconds: int, source: str, service: Service) -> None:
    least = needed_seconds(service, dict.fromkeys(FRACTIONS, 1))
    if seconds < least:
        raise EvaluationError(
            f"{source}: {duration(seconds)} of history; with an interval of {service.interval} s at least "
            f"{duration(least)} are needed to train, tune and test on, and {duration(needed_seconds(service, FEWEST))} "
            "for a verdict; export a longer time"
        )


def _caveats(trace: Trace, seconds: int, peaks: dict[Part, float], service: Service) -> list[str]:
    caveats = []
    if seconds < DAY_SECONDS:
        caveats.append(f"the history covers {duration(seconds)}: other hours of the day were not seen")
    if trace.width_s > service.interval:
        caveats.append(
            f"the history's bins are {trace.width_s:g} s wide, wider than the interval of {service.interval} s: bursts "
            "shorter than a bin were neither trained on nor tested"
        )
    highest = max(peaks.values())
    if highest > service.capacity:
        caveats.append(
            f"the load reaches {highest:.3g} requests/s, all replicas carry {service.capacity:.3g}: raise maxReplicas"
        )
    return caveats


def _unseen(parts: dict[Part, Float], rises: dict[Part, float]) -> list[str]:
    """Caveats where the test part goes beyond the loads that the policy is trained on."""
    caveats = []
    trained, tested = GROWTH * float(parts[Part.TRAIN].max()), float(np.percentile(parts[Part.TEST], 99))
    if tested > trained:
        caveats.append(
            f"the test part reaches {tested:.3g} requests/s (99th percentile) and training went up to {trained:.3g}: "
            "outside what was trained; train again on a history that has such loads in its first 60 %"
        )
    if rises[Part.TEST] > SMOOTH_RISE >= rises[Part.TRAIN]:
        caveats.append(
            f"the test part is bursty (rise {rises[Part.TEST]:.2f}) and the train part is not "
            f"({rises[Part.TRAIN]:.2f}): outside what was trained"
        )
    return caveats


def duration(seconds: float) -> str:
    """`2 h 5 min`."""
    minutes = int(-(-seconds // 60))
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{rest} min"
    return f"{hours:,} h {rest} min" if rest else f"{hours:,} h"
