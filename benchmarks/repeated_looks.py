"""How often a policy that is no better is promoted, if one looks every day: confidence sequence against bootstrap.

    python benchmarks/repeated_looks.py

Days of regret with mean 0 are drawn from several laws; a verdict is looked for on each of the days 7 to 90. Also how
soon one is found where there is a difference, and how long the detector of a turn stays quiet and takes to speak.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rlscaler_operator.shadow.statistics import interval, turned_above

RUNS, FIRST, LAST, ALPHA, QUIET_DAYS = 1000, 7, 90, 0.005, 10_000

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]


def weekly(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Week-ends differ by two standard deviations."""
    return rng.standard_normal(n) + np.where(np.arange(n) % 7 < 5, -2 * 2 / 7, 2 * 5 / 7)


def persistent(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Autoregressive, 0.3 from one day to the next."""
    days = rng.standard_normal(n)
    for i in range(1, n):
        days[i] += 0.3 * days[i - 1]
    return days


LAWS: dict[str, Draw] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "Student t, 3 degrees": lambda rng, n: rng.standard_t(3, n),
    "long tail of good days (exponential)": lambda rng, n: 1 - rng.exponential(size=n),
    "long tail of bad days (exponential)": lambda rng, n: rng.exponential(size=n) - 1,
    "week-ends differ": weekly,
    "days follow one another (AR 0.3)": persistent,
}


def bootstrap_upper(days: NDArray[np.float64], rng: np.random.Generator) -> float:
    """Upper end of the percentile interval over resampled days, 1 - ALPHA both sides."""
    means = days[rng.integers(0, len(days), (400, len(days)))].mean(axis=1)
    return float(np.quantile(means, 1 - ALPHA / 2))


def promoted(days: NDArray[np.float64]) -> int | None:
    """The day on which the sequence first says better; None = never."""
    looks = (n for n in range(FIRST, len(days) + 1) if interval(days[:n], ALPHA, 0.0).high < 0)
    return next(looks, None)


def detected(days: NDArray[np.float64]) -> int | None:
    looks = (n for n in range(2, len(days) + 1) if turned_above(days[max(0, n - LAST) : n], 0.0, QUIET_DAYS, 0.0))
    return next(looks, None)


def main() -> None:
    rng = np.random.default_rng(0)
    print(f"better by chance within {LAST} days, looked at daily from day {FIRST} (nominal {ALPHA / 2:.1%})")
    for name, draw in LAWS.items():
        runs = [draw(rng, LAST) for _ in range(RUNS)]
        sequence = np.mean([promoted(days) is not None for days in runs])
        some = runs[: RUNS // 5]
        bootstrap = np.mean([any(bootstrap_upper(d[:n], rng) < 0 for n in range(FIRST, LAST + 1)) for d in some])
        print(f"  {name:38s} sequence {sequence:6.1%}   bootstrap {bootstrap:6.1%}")
    print("\nday of the verdict, median (share found within 90 days), by effect in standard deviations of a day")
    for effect in (0.3, 0.5, 1.0, 2.0, 3.0):
        found = [promoted(rng.standard_normal(LAST) - effect) for _ in range(RUNS // 2)]
        days = [n for n in found if n is not None]
        print(f"  {effect:3.1f}  {np.median(days) if days else np.nan:5.0f}  ({len(days) / len(found):.0%})")
    print(f"\ndetector of a turn, one false alarm in {QUIET_DAYS:,} days: alarms in a quiet year")
    for name, draw in LAWS.items():
        alarms = np.mean([detected(draw(rng, 365)) is not None for _ in range(100)])
        print(f"  {name:38s} {alarms:6.1%}")
    print("\ndays from a turn on day 61 until it speaks, median, by effect (found within 60 days)")
    for effect in (0.5, 1.0, 2.0, 3.0):
        turned = [detected(np.r_[rng.standard_normal(60) - 1.0, rng.standard_normal(60) + effect]) for _ in range(100)]
        delays = [n - 60 for n in turned if n is not None and n > 60]
        print(f"  {effect:3.1f}  {np.median(delays) if delays else np.nan:5.0f}  ({len(delays)} of 100)")


if __name__ == "__main__":
    main()
