"""Statistics of the loads of days: how high, how bursty at which scale, how much one day says of the next."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.workloads.day_splits import before_test_s
from rlscaler_rl.workloads.days import DAY, DayLoad, Seconds, SecondsOf, day_load, day_trace
from rlscaler_rl.workloads.facts import dispersion
from rlscaler_rl.workloads.seconds import relative_variance

Float = NDArray[np.float64]

SCALES = (1, 10, 60)
"""Seconds over which requests are summed for the index of dispersion."""

JUMP = 2.5
"""A jump: the mean of the next stretch is at least this many times that of the last one."""

CHANCE = 4.0
"""Standard deviations of Poisson counts that a jump has to exceed: from one request to three is none."""

APART_S = 60.0
"""A rise this many seconds or less after another belongs to the same jump."""


MINUTE = 60
WITHIN = (1, 2, 5, 10)
"""Seconds over which requests are summed inside a minute, to compare recorded with drawn seconds."""


@dataclass(frozen=True)
class DayFacts:
    """Rates in requests/s as recorded. None: the bins are too wide to know."""

    name: str
    days: float
    width_s: float
    seconds: str
    mean: float
    peak_over_mean: float
    dispersion: dict[int, float | None]
    """Variance over mean of the requests in 1, 10 and 60 s; 1 for Poisson arrivals of a constant rate."""
    variance: float
    """Relative variance between neighbouring bins beyond Poisson counts, measured up to the train days' end."""
    day_autocorrelation: float | None
    """Correlation of the rate (per minute, or per bin if that is wider) with itself a day later."""
    jumps_10s: float | None
    """Jumps within 10 s, a day; None unless the seconds are recorded."""
    jumps_60s: float | None
    """Jumps within a minute, a day."""
    recurs_hour: float | None
    """Share of the jumps within a minute that come within a minute of a jump of the hour before."""
    recurs_day: float | None
    """The same for the day before. What a uniform spread of the jumps would give is `recurs_by_chance`."""
    recurs_by_chance: float | None


def day_facts(name: str, folder: Path | None = None) -> DayFacts:
    """The statistics of a load of the library. Raises WorkloadError where its file is not there."""
    load = day_load(name)
    return facts_of(name, day_trace(name, folder), load.seconds, before_test_s(load))


def facts_of(name: str, trace: Trace, seconds: Seconds, measured_s: tuple[float, float]) -> DayFacts:
    """The statistics of any trace; `measured_s`: the part on which `variance` is measured."""
    width = trace.width_s
    counts = trace.rate * width
    begin, end = (round(moment / width) for moment in measured_s)
    days = trace.length_s / DAY
    by_scale = {scale: dispersion(counts, round(scale / width)) if scale >= width else None for scale in SCALES}
    sudden = jumps(trace, 10) if width <= 1 and seconds == Seconds.RECORDED else None
    steep = jumps(trace, 60) if width <= 60 else None
    known = steep is not None and len(steep) > 0
    return DayFacts(
        name=name,
        days=days,
        width_s=width,
        seconds=seconds.value,
        mean=float(trace.rate.mean()),
        peak_over_mean=float(trace.rate.max() / trace.rate.mean()),
        dispersion=by_scale,
        variance=relative_variance(trace.rate[begin:end], width),
        day_autocorrelation=_autocorrelation(trace),
        jumps_10s=None if sudden is None else len(sudden) / days,
        jumps_60s=None if steep is None else len(steep) / days,
        recurs_hour=_recurring(steep, 3600) if steep is not None and known else None,
        recurs_day=_recurring(steep, DAY) if steep is not None and known else None,
        recurs_by_chance=_by_chance(steep, trace.length_s) if steep is not None and known else None,
    )


def jumps(trace: Trace, scale_s: int) -> Float:
    """Seconds at which the load rises at least `JUMP`-fold within `scale_s`, more than chance makes it, in order."""
    size = max(round(scale_s / trace.width_s), 1)
    total = np.append(0.0, np.cumsum(trace.rate * trace.width_s))
    at = np.arange(size, len(trace.rate) - size + 1)
    before, after = total[at] - total[at - size], total[at + size] - total[at]
    rises = at[(after >= JUMP * before) & (after - before > CHANCE * np.sqrt(after + before))] * trace.width_s
    return np.asarray(rises[np.diff(rises, prepend=-np.inf) > APART_S])


@dataclass(frozen=True)
class Drawing:
    """How a load's recorded seconds compare with seconds drawn from its minutes."""

    within: dict[int, tuple[float, float]]
    """Variance over mean, inside a minute, of the requests in so many seconds: recorded, drawn."""
    jumps_10s: tuple[int, int]
    """Jumps within 10 s: recorded, drawn."""


def drawing(trace: Trace, name: str, measured_s: tuple[float, float], seed: int = 0) -> Drawing:
    """What drawing keeps and loses, on a load whose seconds are recorded. Requests are Poisson around drawn rates."""
    whole = len(trace.rate) // MINUTE * MINUTE
    recorded = trace.rate[:whole]
    minutes = Trace(recorded.reshape(-1, MINUTE).mean(1), float(MINUTE))
    rate = SecondsOf(minutes, name, measured_s, seed).rate(0, whole)
    drawn = np.random.default_rng([seed, 1]).poisson(rate).astype(float)
    return Drawing(
        {scale: (_within(recorded, scale), _within(drawn, scale)) for scale in WITHIN},
        (len(jumps(Trace(recorded, 1.0), 10)), len(jumps(Trace(drawn, 1.0), 10))),
    )


def _within(counts: Float, scale: int) -> float:
    sums = counts.reshape(-1, MINUTE // scale, scale).sum(2)
    return float(sums.var(1, ddof=1).mean() / sums.mean())


def _recurring(moments: Float, period_s: int) -> float | None:
    """Share of the jumps later than `period_s` that have another within a minute of the same time a period before."""
    minutes = set((moments // 60).astype(int).tolist())
    later = [minute for minute in sorted(minutes) if minute * 60 >= period_s]
    if not later:
        return None
    return float(np.mean([any(minute - period_s // 60 + off in minutes for off in (-1, 0, 1)) for minute in later]))


def _by_chance(moments: Float, length_s: float) -> float:
    return float(1 - np.exp(-3 * len(moments) * 60 / length_s))


def _autocorrelation(trace: Trace) -> float | None:
    size = max(round(60 / trace.width_s), 1)
    rate = trace.rate[: len(trace.rate) // size * size].reshape(-1, size).mean(1)
    lag = round(DAY / (size * trace.width_s))
    if len(rate) < 2 * lag or rate.std() == 0:
        return None
    return float(np.corrcoef(rate[:-lag], rate[lag:])[0, 1])


def table(loads: dict[str, DayLoad], facts: dict[str, DayFacts]) -> list[tuple[str, ...]]:
    """Header and a row for each load, as text; `-` for what is not known or whose file is not there."""
    rows: list[tuple[str, ...]] = [
        (
            "load", "group", "fold", "days", "bin (s)", "seconds", "mean", "peak/mean", "D 1 s", "D 10 s", "D 60 s",
            "variance", "a day later", "jumps 10 s", "jumps 60 s",
            "same minute, hour before", "day before", "by chance",
        )
    ]  # fmt: skip
    for name, load in loads.items():
        one = facts.get(name)
        about = (name, load.group, str(load.fold), str(load.days), f"{load.width_s:g}", load.seconds.value)
        if one is None:
            rows.append((*about, *("-",) * (len(rows[0]) - len(about))))
            continue
        numbers = (one.mean, one.peak_over_mean, *one.dispersion.values(), one.variance, one.day_autocorrelation)
        shares = (one.recurs_hour, one.recurs_day, one.recurs_by_chance)
        rows.append(
            (
                *about,
                *(_short(number, 3) for number in numbers),
                *(_short(number, 2) for number in (one.jumps_10s, one.jumps_60s)),
                *("-" if share is None else f"{100 * share:.0f} %" for share in shares),
            )
        )
    return rows


def _short(number: float | None, digits: int) -> str:
    if number is None:
        return "-"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.{digits}g}"
