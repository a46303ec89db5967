"""Loads drawn by the second: jobs at fixed minutes, bursts at any time, and a rate that never changes.

No recorded load has jumps by the second that recur at the same minute, or that do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.evaluation.days.service_load import MONDAY, ServiceLoad
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.days import DAY

Float = NDArray[np.float64]

DAYS = 10
"""Days of every drawn load; the last two are judged, the two before them are for tuning."""

REFERENCE_QUANTILE = 0.99


def drawn_load(name: str, busy_rps: float) -> ServiceLoad | None:
    """Return the load of a name like `jobs_3`, `random_1` or `steady_40`; None for any other name.

    The number is the seed of `jobs` and `random`, whose busy hours have `busy_rps` requests/s, and the requests/s of
    `steady`.
    """
    match = re.fullmatch(r"(jobs|random|steady)_(\d+)", name)
    if match is None:
        return None
    number = int(match[2])
    if match[1] == "steady":
        rate = np.full(DAYS * DAY, float(number))
    else:
        rate = _KINDS[match[1]](number)
        rate *= busy_rps / np.quantile(rate[: (DAYS - 2) * DAY], REFERENCE_QUANTILE)
    return ServiceLoad(
        name=name,
        group=name,
        drawn=True,
        seconds=lambda first, last: rate[first:last],
        begin=MONDAY,
        offset=0,
        parts={
            Part.TRAIN: tuple(range(DAYS - 4)),
            Part.TUNE: (DAYS - 4, DAYS - 3),
            Part.TEST: (DAYS - 2, DAYS - 1),
        },
    )


def jobs(seed: int) -> Float:
    """Return the rate of a service with jobs at fixed minutes of the half hour.

    Phase, heights, lengths, days off and no-shows are drawn. Beside the jobs, one burst in eight comes at any time.
    """
    # After the micro-blog: 83 % of its jumps fall into two minutes of the half hour, 40 % recur on the next day.
    draw = np.random.default_rng([seed, 18])
    second = np.arange(DAYS * DAY)
    depth, top = draw.uniform(0.2, 0.7), draw.uniform(11, 17)
    rate = 1 - depth * 0.5 * (1 + np.cos(2 * np.pi * (second / DAY - top / 24) + np.pi))
    steps = draw.normal(0, 0.25, DAYS * 144 + 1)
    smooth = np.convolve(steps, np.exp(-np.arange(60) / 12) / 6, mode="same")
    rate *= np.exp(np.interp(second, np.arange(len(smooth)) * 600, smooth))
    minutes = int(draw.integers(0, 30)) + 30 * np.arange(48)
    runs = draw.random(48) < draw.uniform(0.15, 0.9)
    off = set(draw.choice(7, draw.integers(0, 3), replace=False).tolist())
    shows, height = draw.uniform(0.5, 0.95), draw.uniform(1.2, 3.5)
    heights, lengths = height * draw.lognormal(0, 0.25, 48), draw.uniform(40, 240, 48)
    late = draw.uniform(0, 20, 48)
    for day in range(DAYS):
        for k, minute in enumerate(minutes):
            if runs[k] and day % 7 not in off and draw.random() < shows:
                begin = day * DAY + minute * 60 + late[k] + draw.normal(0, 2)
                _burst(rate, begin, heights[k] * draw.lognormal(0, 0.12), lengths[k])
        for _ in range(draw.poisson(runs.sum() / 8)):
            _burst(rate, day * DAY + draw.uniform(0, DAY), height * draw.lognormal(0, 0.4), draw.uniform(40, 240))
    return rate


def random_bursts(seed: int) -> Float:
    """Return the rate of a service whose bursts come at no particular minute, so that no calendar can know them."""
    draw = np.random.default_rng([seed, 19])
    rate = 1 - 0.4 * np.cos(2 * np.pi * np.arange(DAYS * DAY) / DAY)
    for begin in draw.uniform(0, DAYS * DAY, 20 * DAYS):
        _burst(rate, begin, 1.5 * draw.lognormal(0, 0.3), draw.uniform(40, 240))
    return rate


_KINDS: dict[str, Callable[[int], Float]] = {"jobs": jobs, "random": random_bursts}


def _burst(rate: Float, begin: float, height: float, length: float) -> None:
    """Raise the rate in place: within five seconds, falling over some `length` seconds."""
    first, last = max(int(begin), 0), min(int(begin + 3 * length), len(rate))
    if first < last:
        since = np.arange(last - first)
        rate[first:last] *= 1 + height * np.minimum(since / 5, 1) * np.exp(-((since / length) ** 2))
