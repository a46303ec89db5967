"""Load of the demo's day: recorded traffic of a language model, and a job that comes every day at the same time.

The policy has seen the days before: they become the memory that a policy keeps in its status.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlscaler_core.decision.forecaster.learn import learn
from rlscaler_core.decision.forecaster.memory import nothing_learned
from rlscaler_core.decision.forecaster.storage import to_text
from rlscaler_core.decision.tables import make_params
from rlscaler_dev.demo.load import recording
from rlscaler_dev.demo.records import Float
from rlscaler_dev.demo.settings import Settings

RECORDING = "servegen-m-large-1s.csv.gz"
DAY = 86_400
DAYS_BEFORE = 4
TIME_OF_DAY = 14 * 3600
"""Second of the recording's days at which the load begins."""

MEAN_RATE = 10.0
"""Requests/s that the recording is rescaled to: one GPU and one CPU replica carry them."""

JOB_RATE, JOB_SPREAD, JOB_JITTER_SECONDS = 60.0, 0.15, 8.0
"""Requests/s that the job adds, the spread of its height from day to day, and of its begin on the days before."""

JOB_BEGIN, JOB_END = 0.5, 0.85
"""Part of the load's duration at which the job begins and ends."""

WINDOW_SECONDS = 10
"""The learned rates are means of so many seconds, as the operator measures them."""

HOUR_SECONDS, NEAR_SECONDS = 2700, 600
"""Distances from the load's window within which a rate is learned every 60 s, and every 15 s."""

MINUTE_SECONDS = (9.0, 40.0)
"""Seconds of a minute between which the job begins, so that its jitter leaves it in one minute of the day."""


@dataclass(frozen=True, slots=True)
class Days:
    """Requests/s of each second."""

    before: Float  # (DAYS_BEFORE * DAY,), up to the moment at which the load begins
    today: Float  # (duration,)


def make_days(duration: int, seed: int) -> Days:
    """Return the load of `duration` seconds and the days before it. Raises DemoError."""
    traffic = np.asarray(recording("days", RECORDING).per_second())
    traffic *= MEAN_RATE / traffic.mean()
    draw = np.random.default_rng([seed, 7])
    begins = TIME_OF_DAY + np.arange(DAYS_BEFORE + 1) * DAY + round(JOB_BEGIN * duration)
    begins[:-1] += np.rint(draw.uniform(-JOB_JITTER_SECONDS, JOB_JITTER_SECONDS, DAYS_BEFORE)).astype(int)
    heights = JOB_RATE * (1 + draw.uniform(-JOB_SPREAD, JOB_SPREAD, DAYS_BEFORE + 1))
    length = max(1, round((JOB_END - JOB_BEGIN) * duration))
    for begin, height in zip(begins, heights, strict=True):
        traffic[begin : begin + length] += height
    first = TIME_OF_DAY + DAYS_BEFORE * DAY
    return Days(traffic[TIME_OF_DAY:first], traffic[first : first + duration])


def begin_after(earliest: float, duration: int) -> float:
    """Return the first moment (Unix seconds), `earliest` or later, at which the load can begin."""
    low, high = MINUTE_SECONDS
    second = (earliest + JOB_BEGIN * duration) % 60
    return earliest + (0.0 if low <= second <= high else (low - second) % 60)


def memory(days: Days, begin: float, settings: Settings) -> str:
    """Return `status.forecaster` of a policy that saw the days before a load that begins at `begin` (Unix)."""
    params = make_params(
        1,
        cold_start_seconds=np.array([[pool.mean_cold_start_seconds for pool in settings.pools]]),
        requests_per_second=np.array([[pool.requests_per_second for pool in settings.pools]]),
        interval_seconds=np.array([float(settings.interval_seconds)]),
    )
    recent, calendar = nothing_learned(1)
    everywhere = np.ones(1, np.bool_)
    cumulated = np.append(0.0, np.cumsum(days.before))
    for second in _moments(len(days.before), settings.duration_seconds):
        rate = (cumulated[second] - cumulated[second - WINDOW_SECONDS]) / WINDOW_SECONDS
        taken = np.array([begin - len(days.before) + second], np.float64)
        recent, calendar = learn(params, recent, calendar, taken, np.array([rate]), everywhere)
    return to_text(recent[0], calendar[0])


def _moments(length: int, duration: int) -> list[int]:
    """Return the seconds of the days before at which a rate is learned."""
    of_day = np.arange(-HOUR_SECONDS, duration + HOUR_SECONDS)
    near = (of_day >= -NEAR_SECONDS) & (of_day < duration + NEAR_SECONDS)
    due = of_day[np.where(near, of_day % 15 == 0, of_day % 60 == 0)]
    seconds = (due + DAY * np.arange(length // DAY)[:, None]).ravel()
    return [int(second) for second in seconds if second >= WINDOW_SECONDS]
