"""One load as one service meets it: scaled to the service, cut into days, with its calendar and its past."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float
from rlscaler_loadgen.traces import Trace
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads import days as library
from rlscaler_rl.workloads.days import DAY, Seconds, SecondsOf, day_load
from rlscaler_rl.workloads.library import whole, wholes

Float32 = NDArray[np.float32]

MONDAY = 1_767_571_200.0
"""Monday, 5 January 2026, 00:00 UTC: begin of day 0 of a load whose clock is not known."""

PAST_SHARE = 0.6
"""Part of a history of one's own that is past; the rest is judged."""

LEAST_SECONDS = 2 * 3600
"""A shorter history has no past that anything could be tuned on: all of it is judged, where nothing has to be."""

LEAST_PLAYED_SECONDS = 15 * 60
"""A shorter one is mostly the cold starts that it begins with."""


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """A load in requests/s of the service that it is played on. A day is `length` seconds long."""

    name: str
    group: str
    """Loads of one origin share it; intervals take them for one observation."""

    drawn: bool
    """True where seconds were drawn from wider bins."""

    seconds: Callable[[int, int], Float]
    """(begin, end) in seconds of the load -> requests/s of every second between."""

    begin: float
    """Unix seconds of the begin of day 0."""

    offset: int
    """Seconds of the load before day 0."""

    parts: Mapping[Part, tuple[int, ...]]
    """Days of each part; those before a day are its history."""

    length: int = DAY

    by_second: bool = False
    """True where the load counts every second."""

    def day(self, number: int) -> Float32:
        """Return the rate of every second of a day (length,), in requests/s."""
        first = self.offset + number * self.length
        return self.seconds(first, first + self.length).astype(np.float32)

    def epoch(self, number: int) -> float:
        """Return the Unix seconds at which a day begins."""
        return self.begin + number * self.length


def from_library(
    name: str, capacity_rps: float, share: float = library.NOMINAL_SHARE, folder: Path | None = None
) -> ServiceLoad:
    """A load of the library, whose reference rate needs `share` of `capacity_rps`, the requests/s of all replicas.

    Raises WorkloadError for a load that is not there or has too few days.
    """
    load = day_load(name)
    source = library.seconds_of_day_load(name, folder)
    factor = library.scale(library.reference_rps(name, folder), capacity_rps, share)
    begin = MONDAY
    if load.begin is not None:
        local = datetime.fromisoformat(load.begin).replace(tzinfo=ZoneInfo(load.zone or "UTC"))
        begin = local.timestamp() + load.first_midnight_s
    return ServiceLoad(
        name=name,
        group=load.group,
        drawn=load.seconds is Seconds.DRAWN,
        seconds=lambda first, last: factor * source.rate(first, last),
        begin=begin,
        offset=load.first_midnight_s,
        parts={part: tuple(days) for part, days in library.own_service(load).items()},
        by_second=load.width_s <= 1,
    )


def own(trace: Trace, name: str, tuned: bool = True, factor: float = 1.0) -> ServiceLoad:
    """Return a recorded load of one's own service: the first 60 % is past, the rest is judged.

    Of less than three days one stretch is judged instead of days, and of less than two hours all of it. Days are cut
    from the end of the history, and keep its calendar.

    :param tuned: whether contenders are tuned on the past, which takes two hours.
    :param factor: on the rates.
    :raises EvaluationError: for a history that is too short.
    """
    seconds = int(trace.length_s)
    least = LEAST_SECONDS if tuned else LEAST_PLAYED_SECONDS
    if seconds < least:
        shorter = f" (`rlscaler simulate` takes {LEAST_PLAYED_SECONDS // 60} min)" if tuned else ""
        needed = f"{least // 3600} h" if tuned else f"{least // 60} min"
        raise EvaluationError(
            f"{name}: {seconds / 60:.0f} min of history; at least {needed} are needed, export a longer time{shorter}"
        )
    length, past_share = DAY, PAST_SHARE
    if seconds < LEAST_SECONDS:
        length, past_share = seconds // 60 * 60, 0.0
    elif seconds < 3 * DAY:
        length = int((1 - PAST_SHARE) * seconds) // 60 * 60
    # Days are cut from the end, so that the newest load is judged and the rest is dropped at the begin.
    offset = seconds % length
    count = seconds // length
    past = max(int(past_share * count), 1) if past_share else 0
    # The spread within bins is measured on the past alone, unless there is none.
    seen = float(offset + past * length) if past else float(seconds)
    source = SecondsOf(trace, name, (0.0, seen))
    return ServiceLoad(
        name=name,
        group=name,
        drawn=source.drawn,
        seconds=lambda first, last: factor * source.rate(first, last),
        begin=MONDAY if trace.begin is None else trace.begin + offset,
        offset=offset,
        parts={
            Part.TRAIN: tuple(range(past - 1)),
            Part.TUNE: (past - 1,) if past else (),
            Part.TEST: tuple(range(past, count)),
        },
        length=length,
        by_second=trace.width_s <= 1,
    )


def stretch(name: str, capacity_rps: float, share: float) -> ServiceLoad | None:
    """Return a recorded workload of about an hour that counts every second, as one stretch; None for other names.

    An hour has no past: its scale is that of the whole, no forecaster knows it, and nothing can be tuned on it.
    """
    if name not in wholes():
        return None
    rate = whole(name)
    factor = library.scale(float(np.percentile(rate, 99)), capacity_rps, share)
    return ServiceLoad(
        name=name,
        group="azure",
        drawn=False,
        seconds=lambda first, last: factor * rate[first:last],
        begin=MONDAY,
        offset=0,
        parts={Part.TRAIN: (), Part.TUNE: (), Part.TEST: (0,)},
        length=len(rate) // 60 * 60,
        by_second=True,
    )
