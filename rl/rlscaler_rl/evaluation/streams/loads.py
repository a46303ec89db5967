"""Loads of simulated consumers: a shape, or the end of a recorded load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_loadgen.patterns import rate
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.service_tuning.history import check_counter, duration
from rlscaler_rl.workloads import WorkloadError
from rlscaler_rl.workloads.days import SecondsOf
from rlscaler_rl.workloads.recording import read_load

LONGEST_SECONDS = 6 * 3600
"""Seconds at the end of a longer history that are played: all of it would take more than a minute or two."""

SHORTEST_SECONDS = 60

SEARCH_SEEDS = 3
"""Groups that settings are searched on; their seeds follow the seeds of the played groups."""

SEARCH_SECONDS = 1800
"""Longest load for the search: of a longer one, the stretch of this length with the most messages."""


@dataclass(frozen=True, slots=True)
class Load:
    """A load, with a row for each seed."""

    name: str
    rates: Float
    """(N, T) messages/s of each second, a row for each seed."""

    searched: Float
    """(S, T') messages/s of each second, of other seeds, that settings are searched on."""

    notes: tuple[str, ...] = ()


def shaped(pattern: str, seconds: int, low: float, peak: float, seeds: int) -> Load:
    """Return a shape of the load generator between `low` and `peak` messages/s."""
    rows = np.stack(
        [rate(pattern, seconds, seed, low=low, high=peak, start=low) for seed in range(seeds + SEARCH_SEEDS)]
    )
    return Load(pattern, rows[:seeds], _busiest(rows[seeds:]))


def recorded(history: Path, seeds: int) -> Load:
    """Return the last `LONGEST_SECONDS` of a CSV file of messages/s; each seed draws the seconds of wider bins itself.

    Raises EvaluationError naming the file and the remedy.
    """
    trace = read_load(history)
    check_counter(trace, str(history))
    end = int(trace.length_s)
    if end < SHORTEST_SECONDS:
        raise EvaluationError(f"{history}: {end} s of history; at least {SHORTEST_SECONDS} s are needed, export more")
    begin = max(end - LONGEST_SECONDS, 0)
    try:
        sources = [SecondsOf(trace, history.stem, (0.0, float(end)), seed) for seed in range(seeds + SEARCH_SEEDS)]
    except WorkloadError as error:
        raise EvaluationError(f"{history}: {error}") from error
    notes = []
    if begin:
        notes.append(f"played: the last {duration(end - begin)} of {duration(end)}")
    if sources[0].drawn:
        notes.append(f"bins of {trace.width_s:g} s: the seconds within are drawn, so short jumps are not the real ones")
    rows = np.stack([source.rate(begin, end) for source in sources])
    return Load(history.stem, rows[:seeds], _busiest(rows[seeds:]), tuple(notes))


def _busiest(rows: Float) -> Float:
    """Return the `SEARCH_SECONDS` of rows (S, T) with the most messages in all of them together."""
    sums = np.concatenate([[0.0], np.cumsum(rows.sum(axis=0))])
    length = min(SEARCH_SECONDS, rows.shape[1])
    begin = int(np.argmax(sums[length:] - sums[:-length]))
    return rows[:, begin : begin + length]
