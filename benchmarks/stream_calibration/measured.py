"""The figures of a course that was played on a broker, from the rows of its messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.stream_calibration.course import CHANGES, MESSAGE_SECONDS, PARTITIONS, SECONDS
from benchmarks.stream_calibration.figures import Figures, mean

from rlscaler_core.decision.types import Float
from rlscaler_dev.demo.records import read_columns
from rlscaler_loadgen.streams.journal import ASSIGNMENTS, PROCESSED, PRODUCED
from rlscaler_rl.simulation.streams.groups import STEP_SECONDS

WITHIN_SECONDS = 25.0
"""What belongs to a change ends so long after it, when the next one comes."""

OWNED_SECONDS = 5.0
"""Partitions of a consumer that leaves are those that it processed messages of, so long before."""


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of a course: times are seconds since the load's begin."""

    scheduled: Float  # (M,) of the messages that were written
    written_to: Float  # (M,) partition
    waited: Float  # (M,) seconds until the work on the message ended for the first time
    ended: Float  # (D,) when the work on a message ended
    came: Float  # (D,) when that message was written
    partition: Float  # (D,)
    pod: np.ndarray[Any, Any]  # (D,) names
    beats: dict[str, float]  # of each first consumer: when it was given partitions last, before the load
    changes: list[dict[str, Any]]


def read(folder: Path) -> Records:
    """Read what `broker.play` left of a course. Raises RecordError that names the file."""
    run = json.loads((folder / "run.json").read_text())
    written, done = read_columns(folder / "produced.csv", PRODUCED), read_columns(folder / "processed.csv", PROCESSED)
    ended = np.array(done["time"], np.float64) - run["begun"]
    scheduled = np.array(written["scheduled_at"], np.float64) - run["begun"]
    places = list(zip(written["partition"], written["offset"], strict=True))
    when = dict(zip(places, scheduled.tolist(), strict=True))
    first: dict[tuple[str, str], float] = {}
    for place, end in zip(zip(done["partition"], done["offset"], strict=True), ended.tolist(), strict=True):
        first[place] = min(end, first.get(place, np.inf))
    changes = [change | {"at": change["at"] - run["begun"]} for change in run["changes"]]
    return Records(
        scheduled=scheduled,
        written_to=np.array(written["partition"], np.float64),
        waited=np.array([first[place] for place in places]) - scheduled,
        ended=ended,
        came=np.array([when[place] for place in zip(done["partition"], done["offset"], strict=True)]),
        partition=np.array(done["partition"], np.float64),
        pod=np.array(done["pod"]),
        beats=_beats(folder, run["begun"]),
        changes=changes,
    )


def _beats(folder: Path, begun: float) -> dict[str, float]:
    rows = read_columns(folder / "assignments.csv", ASSIGNMENTS)
    moments = np.array(rows["time"], np.float64) - begun
    return {pod: float(moment) for pod, moment in zip(rows["pod"], moments, strict=True) if moment < 0}


def arrivals(records: Records) -> Float:
    """(PARTITIONS, T) messages in each step of the simulator."""
    steps = round(SECONDS / STEP_SECONDS)
    step = np.clip(records.scheduled / STEP_SECONDS, 0, steps - 1).astype(int)
    counts = np.zeros((PARTITIONS, steps))
    np.add.at(counts, (records.written_to.astype(int), step), 1)
    return counts


def figures(records: Records) -> Figures:
    """The figures of one course."""
    p95 = float(np.percentile(records.waited, 95, method="higher"))
    assert len(records.changes) == len(CHANGES)
    return mean(Figures(*_change(records, change), p95) for change in records.changes)


def _change(records: Records, change: dict[str, Any]) -> Iterator[float]:
    """Join, stop and orphan wait of one change."""
    at, until = change["at"], change["at"] + WITHIN_SECONDS
    joins = [_after(records, records.pod == pod, at) for pod in change["came"]]
    yield float(np.mean(joins)) if joins else np.nan
    yield max(_stop(records, pod, at, until) for pod in change["stayed"])
    went = np.isin(records.pod, change["went"]) & (records.ended > at - OWNED_SECONDS)
    others = ~np.isin(records.pod, change["went"])
    orphans = np.unique(records.partition[went])
    waits = [_after(records, others & (records.partition == orphan), at) for orphan in orphans]
    yield float(np.mean(waits)) if waits else np.nan


def _after(records: Records, rows: Any, at: float) -> float:
    """Seconds from `at` to the begin of the first message of these rows that ended later."""
    ended = records.ended[rows]
    return max(0.0, float(ended[ended > at].min(initial=np.inf)) - MESSAGE_SECONDS - at)


def _stop(records: Records, pod: str, at: float, until: float) -> float:
    """The longest time in which a consumer had ended a message and not begun the next one, which was there."""
    mine = np.flatnonzero(records.pod == pod)
    mine = mine[np.argsort(records.ended[mine], kind="stable")]
    ended, came = records.ended[mine], records.came[mine]
    free = np.maximum(np.concatenate([[-np.inf], ended[:-1]]), came)
    inside = (ended > at) & (ended <= until)
    return max(0.0, float((ended - free)[inside].max(initial=0.0)) - MESSAGE_SECONDS)
