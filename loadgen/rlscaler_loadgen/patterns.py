"""Load patterns: how many requests a second arrive in each second of a run.

One definition for Locust and for the simulator. One user sends one request a second on average, so a rate in
requests/s and a number of users are the same number. numpy only; every draw comes from the caller's
`numpy.random.Generator`.

| pattern | load |
|---|---|
| ramp | `start` to `high` in 20 equal steps |
| spike | `low`, `high`, `low` for 30, 40 and 30 % of the time |
| periodic | a sinusoid between `low` and `high` that begins at `low` |
| random | uniform between `low` and `high`, redrawn every 20-60 s |
| trace | a recorded series, rescaled so that one percentile of it is `high` |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rlscaler_loadgen.errors import TraceError
from rlscaler_loadgen.traces import Trace, read_trace

Float = NDArray[np.float64]

PATTERNS = ("ramp", "spike", "periodic", "random", "trace")
RAMP_STEPS = 20
SPIKE_BEGIN, SPIKE_END = 0.3, 0.7
REDRAW_SECONDS = (20, 60)
PERIOD_SECONDS = 300.0
"""The sinusoid's period where none is given; a shorter run has one period."""
SAMPLE_TRACE = Path(__file__).parent / "data" / "azure-llm-2023-conv-30min.csv"
"""30 minutes of LLM chat traffic; its head names the source and the licence (CC-BY-4.0)."""


@lru_cache(maxsize=1)
def sample_trace() -> Trace:
    """The trace that ships with the package (`SAMPLE_TRACE`)."""
    return read_trace(SAMPLE_TRACE)


@dataclass(frozen=True)
class Shape:
    """Parameters of all rows of one batch, and per-row phases."""

    duration_s: int
    low: float
    high: float
    start: float
    period_s: Float  # (n,)
    phase: Float  # (n,) fraction of the pattern by which it is shifted, 0-1
    trace: Trace
    percentile: float
    trace_speed: float
    rng: np.random.Generator

    def seconds(self) -> Float:
        """(n, duration_s) middle of each second after the phase's circular shift, as seconds of the run."""
        middle = np.arange(self.duration_s) + 0.5
        return (middle + self.phase[:, None] * self.duration_s) % self.duration_s


def _ramp(shape: Shape) -> Float:
    step = np.floor(shape.seconds() / shape.duration_s * RAMP_STEPS)
    return shape.start + (shape.high - shape.start) * np.minimum(step, RAMP_STEPS - 1) / (RAMP_STEPS - 1)


def _spike(shape: Shape) -> Float:
    fraction = shape.seconds() / shape.duration_s
    return np.where((fraction >= SPIKE_BEGIN) & (fraction < SPIKE_END), shape.high, shape.low)


def _periodic(shape: Shape) -> Float:
    turns = np.arange(shape.duration_s) / shape.period_s[:, None] + shape.phase[:, None]
    return shape.low + (shape.high - shape.low) * (1 - np.cos(2 * np.pi * turns)) / 2


def _random(shape: Shape) -> Float:
    n, shortest = len(shape.phase), REDRAW_SECONDS[0]
    redraws = shape.duration_s // shortest + 2
    dwell = shape.rng.integers(shortest, REDRAW_SECONDS[1] + 1, (n, redraws))
    levels = shape.rng.uniform(shape.low, shape.high, (n, redraws + 1))
    # Phase: part of the first dwell is already over when the run begins.
    dwell[:, 0] = np.maximum(1, np.rint(dwell[:, 0] * (1 - shape.phase)))
    change = np.cumsum(dwell, axis=1)
    row, column = np.nonzero(change < shape.duration_s)
    changes = np.zeros((n, shape.duration_s), dtype=np.int64)
    changes[row, change[row, column]] = 1
    return np.take_along_axis(levels, np.cumsum(changes, axis=1), axis=1)


def _trace(shape: Shape) -> Float:
    trace, speed = shape.trace, shape.trace_speed
    reference = trace.percentile(shape.percentile)
    if reference <= 0:
        raise TraceError(f"trace: its {shape.percentile:g}th percentile is 0; rescale by a higher percentile")
    smooth = Trace(trace.per_second(), 1.0)
    edges = shape.phase[:, None] * smooth.length_s + np.arange(shape.duration_s + 1) * speed
    return np.diff(smooth.volume(edges), axis=1) / speed * (shape.high / reference)


_GENERATORS: dict[str, Callable[[Shape], Float]] = {
    "ramp": _ramp,
    "spike": _spike,
    "periodic": _periodic,
    "random": _random,
    "trace": _trace,
}


def rates(
    patterns: str | Sequence[str],
    duration_s: int,
    rng: np.random.Generator,
    n: int | None = None,
    *,
    low: float = 10.0,
    high: float = 100.0,
    start: float = 1.0,
    scale: ArrayLike = 1.0,
    scale_range: tuple[float, float] | None = None,
    phase: ArrayLike = 0.0,
    random_phase: bool = False,
    period_s: ArrayLike | None = None,
    trace: Trace | None = None,
    percentile: float = 99.0,
    trace_speed: float = 1.0,
) -> Float:
    """Requests/s in every second of `n` runs: (n, duration_s).

    :param patterns: a name of `PATTERNS`, or several, which the rows take in turn; `n` is their number by default.
    :param low: level in requests/s, before `scale`; `high` and `start`, the ramp's first step, likewise.
    :param scale: factor on the whole run, one or (n,); `scale_range` draws it log-uniformly for every row.
    :param phase: shift in 0-1, one or (n,); `random_phase` draws it uniformly for every row. ramp and spike are shifted
        circularly by that part of the run, the sinusoid by that part of its period, a trace by that part of its length;
        of the random pattern's first level that part is already over.
    :param period_s: of the sinusoid, one or (n,); min(duration, 300 s) by default.
    :param trace: load that "trace" replays (`sample_trace()` by default), `trace_speed` seconds of it a second,
        rescaled so that its `percentile` becomes `high`.
    :raises ValueError: an unknown pattern, or levels out of order.
    """
    names = [patterns] if isinstance(patterns, str) else list(patterns)
    count = len(names) if n is None else n
    _check(names, duration_s, low, high, start, trace_speed)
    factor = _per_row(scale, count, "scale")
    if scale_range is not None:
        factor = factor * np.exp(rng.uniform(np.log(scale_range[0]), np.log(scale_range[1]), count))
    phases = rng.uniform(0, 1, count) if random_phase else _per_row(phase, count, "phase") % 1.0
    periods = _per_row(min(duration_s, PERIOD_SECONDS) if period_s is None else period_s, count, "period_s")
    result = np.empty((count, duration_s))
    row_names = np.array([names[i % len(names)] for i in range(count)])
    for name in dict.fromkeys(row_names.tolist()):
        rows = np.flatnonzero(row_names == name)
        replayed = (trace or sample_trace()) if name == "trace" else _NO_TRACE
        shape = Shape(duration_s, low, high, start, periods[rows], phases[rows], replayed, percentile, trace_speed, rng)
        result[rows] = _GENERATORS[name](shape)
    return result * factor[:, None]


def rate(pattern: str, duration_s: int, seed: int | np.random.Generator = 0, **options: object) -> Float:
    """One run, (duration_s,), with the keyword arguments of `rates`; equal seeds give equal runs."""
    return rates(pattern, duration_s, np.random.default_rng(seed), 1, **options)[0]  # type: ignore[arg-type, no-any-return]


_NO_TRACE = Trace(np.zeros(1), 1.0)


def _per_row(value: ArrayLike, count: int, name: str) -> Float:
    try:
        return np.broadcast_to(np.asarray(value, dtype=float), (count,)).copy()
    except ValueError as error:
        raise ValueError(f"{name}: one number or {count} are needed, got shape {np.shape(value)}") from error


def _check(names: list[str], duration_s: int, low: float, high: float, start: float, speed: float) -> None:
    unknown = sorted(set(names) - set(PATTERNS))
    if unknown or not names:
        raise ValueError(f"pattern {', '.join(unknown) or 'missing'}: choose from {', '.join(PATTERNS)}")
    if duration_s < 1:
        raise ValueError(f"duration_s: at least 1 s is needed, got {duration_s}")
    if set(names) != {"trace"} and not (0 <= low <= high and 0 <= start <= high):
        raise ValueError(f"levels: 0 <= low, start <= high is needed, got low {low}, start {start}, high {high}")
    if speed <= 0:
        raise ValueError(f"trace_speed: must be positive, got {speed}")


def poisson_arrivals(rate: Float, rng: np.random.Generator) -> Float:
    """Rising send times in seconds of the run, given the rate in requests/s of each second, (duration_s,).

    The number of arrivals in a second is Poisson, their times within it are uniform. Equal seeds give equal
    times, so that contenders meet the same requests at the same moments.
    """
    counts = rng.poisson(rate)
    return np.sort(np.repeat(np.arange(len(rate), dtype=float), counts) + rng.uniform(0, 1, int(counts.sum())))
