"""Who may learn from which days, and who is judged on which: three kinds of split that are never mixed.

transfer: whole groups of loads are left out of training; what a user meets who installs a policy that never saw the
service. own service: a policy is trained and tuned on the first days of one load and judged on later ones. shift: the
service is another one than trained for, in one respect at a time.

A load is rescaled by a percentile of its own train days in all of them, so the train days of a load are judged in none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlscaler_rl.workloads.days import DAY, DayLoad, SecondsOf, day_load, day_loads, day_trace
from rlscaler_rl.workloads.names import Part, WorkloadError
from rlscaler_rl.workloads.recording import FRACTIONS, reference

LEAST_DAYS = 3
"""A load with fewer whole days has no split: one day each to train, tune and test."""

SHARES = (0.3, 1.2)
"""Bounds of the log-uniform share of all replicas' capacity that a load's reference rate is drawn to need."""

NOMINAL_SHARE = 0.45
"""The share where nothing is drawn: the busy hours need half of the service, a jump to twice as much all of it."""


@dataclass(frozen=True)
class Days:
    """Days of a load, each from midnight to midnight: `first` to `last`, the latter not included."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last))


@dataclass(frozen=True)
class Transfer:
    """Learn from all days of `train`, be judged on the days of `own_service(name)`'s test part of each of `test`."""

    fold: int
    train: tuple[str, ...]
    test: tuple[str, ...]


def own_service(load: DayLoad) -> Mapping[Part, Days]:
    """Train, tune and test days, one after the other: about `FRACTIONS` of the whole days, at least one of each.

    Raises WorkloadError for a load with fewer than `LEAST_DAYS`.
    """
    if load.days < LEAST_DAYS:
        raise WorkloadError(f"{load.file}: {load.days} whole days; at least {LEAST_DAYS} are needed, use a longer load")
    test = max(math.floor(FRACTIONS[Part.TEST] * load.days), 1)
    tune = max(math.floor(FRACTIONS[Part.TUNE] * load.days), 1)
    train = load.days - tune - test
    return {
        Part.TRAIN: Days(0, train),
        Part.TUNE: Days(train, train + tune),
        Part.TEST: Days(train + tune, load.days),
    }


def transfer(loads: Mapping[str, DayLoad] | None = None) -> tuple[Transfer, ...]:
    """A split for every fold: the loads of its groups are tested, all others trained on."""
    loads = day_loads() if loads is None else loads
    folds = sorted({load.fold for load in loads.values()})
    return tuple(
        Transfer(
            fold,
            tuple(name for name, load in loads.items() if load.fold != fold),
            tuple(name for name, load in loads.items() if load.fold == fold),
        )
        for fold in folds
    )


def span_s(load: DayLoad, days: Days) -> tuple[int, int]:
    """Begin and end of the days in seconds of the load."""
    begin = load.first_midnight_s
    return begin + days.first * DAY, begin + days.last * DAY


def before_test_s(load: DayLoad) -> tuple[int, int]:
    """What its scale and its dispersion are measured on: everything up to the end of the train days."""
    return 0, span_s(load, own_service(load)[Part.TRAIN])[1]


def seconds_of_day_load(name: str, folder: Path | None = None, seed: int = 0) -> SecondsOf:
    """The seconds of a load of the library, its dispersion measured on its train days only."""
    return SecondsOf(day_trace(name, folder), name, before_test_s(day_load(name)), seed)


def reference_rps(name: str, folder: Path | None = None) -> float:
    """The rate in requests/s as recorded that is not exceeded 99 % of the time of the load's train days."""
    trace = day_trace(name, folder)
    begin, end = (round(moment / trace.width_s) for moment in before_test_s(day_load(name)))
    return reference(trace.rate[begin:end], name)


def scale(reference_rps: float, capacity_rps: float, share: float = NOMINAL_SHARE) -> float:
    """Factor on a load after which its reference rate needs `share` of the service's capacity at its largest."""
    if not (reference_rps > 0 and capacity_rps > 0 and share > 0):
        raise WorkloadError(
            f"reference {reference_rps:g} and capacity {capacity_rps:g} requests/s, share {share:g}; "
            "all have to be positive"
        )
    return share * capacity_rps / reference_rps


def drawn_share(rng: np.random.Generator) -> float:
    """A share for `scale`, log-uniform in `SHARES`."""
    low, high = map(math.log, SHARES)
    return math.exp(rng.uniform(low, high))
