"""Decision logs on disk: a short line for each decision of a policy, and whole records on demand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlscaler_core.decision.exceptions import ForecasterStateError
from rlscaler_core.decision.forecaster.memory import LEVELS
from rlscaler_core.decision.forecaster.outlook import newest_forecast
from rlscaler_core.decision.forecaster.storage import from_text
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cli.explain.analysis import analyse
from rlscaler_operator.cli.explain.record_page import record_page
from rlscaler_operator.cli.replay.actors import AvailableActors
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.log import find_files, read

Json = dict[str, Any]

BAND = (0.5, 0.9)
"""Shares of the cases, two of the forecaster's `LEVELS`, in which the load stays below a bound of the forecast."""

POLICIES = 4
"""Policies whose decisions are kept in memory."""


class Decision(NamedTuple):
    """One line of the log in short. Unknown numbers are None."""

    time: float
    id: str
    load: float | None
    expected: tuple[float | None, float | None]
    """Bounds of the forecast."""
    ready: Mapping[str, int]
    wanted: Mapping[str, int]
    capacity: float | None
    """Load that the ready replicas carry."""


class DecisionLog:
    """Audit logs in files or folders. All methods block: call them in a thread. They raise RecordError."""

    def __init__(self, paths: Sequence[Path], models: Sequence[Path] = ()) -> None:
        self._paths, self._models = paths, models
        self._read: dict[str, tuple[Any, list[Decision]]] = {}

    @cached_property
    def actors(self) -> AvailableActors:
        """Actors that can decide again."""
        return AvailableActors(self._models)

    def decisions(self, policy: str) -> list[Decision]:
        """Return the decisions of NAMESPACE/NAME in the order of time."""
        stamp = self.stamp()
        known = self._read.get(policy)
        if known is None or known[0] != stamp:
            lines = sorted((_short(record) for record in self.records(policy)), key=lambda line: line.time)
            while len(self._read) >= POLICIES:
                self._read.pop(next(iter(self._read)))
            known = self._read[policy] = stamp, lines
        return known[1]

    def records(self, policy: str) -> Iterator[Json]:
        """Yield the whole records of a policy; lines that are torn or damaged are left out."""
        for line in read(find_files(self._paths)):
            if line.record is not None and line.policy == policy and "samples" in line.record:
                yield line.record

    def record_at(self, policy: str, time: float) -> Json:
        """Return the newest record at a time or before it, else the oldest. Raises RecordError where there is none."""
        lines = self.decisions(policy)
        if not lines:
            raise RecordError(f"the decision log has no decision of {policy}")
        wanted = ([line for line in lines if line.time <= time + 1] or lines[:1])[-1]
        return next(record for record in self.records(policy) if record["decision_id"] == wanted.id)

    def page(self, record: Json) -> Any:
        """Return the page of a record, as `rlscaler explain` prints it."""
        return record_page(record, analyse(record, self.actors))

    def stamp(self) -> Any:
        """Return a value that changes whenever the files do."""
        return [(file, stat.st_size, stat.st_mtime_ns) for file in find_files(self._paths) for stat in [file.stat()]]


def _short(record: Json) -> Decision:
    samples, params = record["samples"], record.get("params") or {}
    present = dict(zip(POOLS, params.get("present") or (True, True), strict=True))
    ready = {pool: n for pool, n in zip(POOLS, samples["ready_replicas"], strict=True) if present[pool]}
    each = dict(zip(POOLS, params.get("requests_per_second") or (None, None), strict=True))
    known = [ready[pool] * each[pool] for pool in ready if each[pool] is not None]
    return Decision(
        time=float(record["time"]),
        id=record["decision_id"],
        load=_number(samples["arrival_rate"]),
        expected=_expected(record),
        ready=ready,
        wanted={pool: record["desired"][pool] for pool in ready},
        capacity=sum(known) if len(known) == len(ready) else None,
    )


def _expected(record: Json) -> tuple[float | None, float | None]:
    """Return the bounds of the newest open forecast of the load, as the decision knew it."""
    text = (record.get("state") or {}).get("forecaster")
    if text is None:
        return None, None
    try:
        recent, _ = from_text(text)
    except ForecasterStateError:
        return None, None
    low, high = (_number(rate) for rate in np.fmax.reduce(newest_forecast(recent)[0])[[*map(LEVELS.index, BAND)]])
    return low, high


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
