"""Token services whose requests come as on real days: settings are tuned on one day and judged on the next one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation.tokens.drawn import FIRST_SECONDS, TUNED_SEED, Setup, World, drawn_kinds
from rlscaler_rl.workloads.days import (
    DAY,
    LEAST_DAYS,
    Days,
    day_load,
    own_service,
    seconds_of_day_load,
    span_s,
    there,
)
from rlscaler_rl.workloads.names import Part
from rlscaler_rl.workloads.recording import reference

ALL = "all"

TUNED_SECONDS = 6 * 3600
"""Longest stretch of the earlier day on which settings are tuned; a search plays it many times."""


def with_days(names: Sequence[str]) -> list[str]:
    """Return the names, or for `ALL` those of the library whose file is there and has enough days."""
    if list(names) != [ALL]:
        return list(dict.fromkeys(names))
    return [name for name in there() if day_load(name).days >= LEAST_DAYS]


def worlds(names: Sequence[str], seconds: int, seed: int) -> tuple[World, World]:
    """Return a service for each load of the library of days, on the day before its test days and on the first of them.

    Arrivals follow the day, and the kinds of requests drift as in drawn services. Servers come in turn; mixes, sizes,
    cold starts and errors of the declared capacity are drawn, and are the same on both days.

    :param seconds: length of the judged stretch, of whole minutes.
    :raises WorkloadError: for a load that is unknown, not there or too short.
    """
    pairs = [stretches(name, seconds) for name in names]
    first_seconds = np.full(len(names), FIRST_SECONDS)
    setup = Setup.drawn(len(names), np.random.default_rng([seed, 24]), first_seconds)
    past, judged = (
        _world(setup, np.stack(relative), seed, number)
        for relative, number in zip(zip(*pairs, strict=True), (TUNED_SEED + seed, seed), strict=True)
    )
    return past, judged


def stretches(name: str, seconds: int) -> tuple[Float, Float]:
    """Return the load of every second of the tuned and of the judged stretch of a load of the library.

    Either lasts `seconds`, the tuned one `TUNED_SECONDS` at most, and is of the hours that are the busiest ones of the
    earlier day. A load of 1 is that day's 99th percentile. Raises WorkloadError as `worlds` does.
    """
    load = day_load(name)
    judged = own_service(load)[Part.TEST].first
    earlier, later = seconds_of_day_load(name).rate(*span_s(load, Days(judged - 1, judged + 1))).reshape(2, DAY)
    usual = reference(earlier, name)
    tuned = min(seconds, TUNED_SECONDS)
    return earlier[_busiest(earlier, tuned)] / usual, later[_busiest(earlier, seconds)] / usual


def _busiest(day: Float, seconds: int) -> slice:
    """Return the busiest stretch of a day, which begins with a minute."""
    total = np.concatenate([[0.0], np.cumsum(day)])[::60]
    begin = 60 * int(np.argmax(total[seconds // 60 :] - total[: len(total) - seconds // 60]))
    return slice(begin, begin + seconds)


def _world(setup: Setup, relative: Float, seed: int, number: int) -> World:
    rng = np.random.default_rng([number, 25])
    kinds = np.stack([drawn_kinds(mix, relative.shape[1], rng) for mix in setup.mixes])
    # Shares, so that surges of a kind change the mix alone, and all requests together follow the day.
    kinds /= kinds.sum(axis=2, keepdims=True)
    return setup.world(relative, kinds, np.random.default_rng([seed, 26]), number)
