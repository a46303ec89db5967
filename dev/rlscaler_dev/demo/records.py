"""The raw records of a run, as they lie in OUT/data (of a demo with two copies in OUT/data/COPY).

They are written while it goes on, and read for the results.

| file | one row for |
|---|---|
| `run.json` | the run: contender, pattern, seed, start of the load, prices, versions |
| `offered.csv` | every second of the pattern: the rate that it asks for |
| `requests.csv` | every finished request, in the order of completion (written by the load generator) |
| `replicas.csv` | every change of a pool: spec.replicas, existing, ready and starting pods |
| `routes.csv` | every change of the HTTPRoute's traffic weights |
| `decisions.csv` | every decision of the operator: `action` by its actor, `floor` between two actions |

All times are Unix seconds. Replicas, weights and placement hold until the next row.
"""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rlscaler_dev.demo.settings import CLIENT_TIMEOUT_MS, POOLS, Settings
from rlscaler_dev.exceptions import RecordError

Float = NDArray[np.float64]

OFFERED_COLUMNS = ("t", "offered_rps")
REPLICA_COLUMNS = ("spec", "existing", "ready", "starting")
ROUTE_COLUMNS = ("gpu_weight", "cpu_weight")
DECISION_COLUMNS = ("time", "kind", "placement", "unknown_required")
PLACEMENTS = ("PreferGPU", "Balanced", "PreferCPU")
UNKNOWN_PLACEMENT = -1


def versions() -> dict[str, str]:
    """Versions and machine, on which the figures of a run depend."""
    packages = {name: version(name) for name in ("rlscaler", "locust", "kopf", "onnxruntime")}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    return {**packages, "python": platform.python_version(), "machine": machine}


@dataclass(frozen=True, slots=True)
class Run:
    """Content of `run.json`; `started_at` and `ended_at` are the load's begin and end."""

    contender: str
    pattern: str
    seed: int
    duration_s: float
    interval_seconds: float
    slo_ms: float
    started_at: float
    server_version: str
    versions: dict[str, str] = field(default_factory=dict)
    cost_per_hour: dict[str, float] = field(default_factory=dict)
    capacity_error: float = 0.0
    capacity_error_after: float = 0.0

    @classmethod
    def of(cls, settings: Settings, server_version: str, started_at: float) -> Self:
        """The run with these settings; `started_at`: Unix seconds of the load's begin."""
        return cls(
            contender=settings.contender,
            pattern=settings.pattern,
            seed=settings.seed,
            duration_s=float(settings.duration_seconds),
            interval_seconds=float(settings.interval_seconds),
            slo_ms=settings.slo_ms,
            started_at=started_at,
            server_version=server_version,
            versions=versions(),
            cost_per_hour={pool.name: pool.cost_per_hour for pool in settings.pools},
            capacity_error=settings.capacity_error,
            capacity_error_after=settings.capacity_error_after,
        )

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            data = json.loads(path.read_text())
            return cls(**{f.name: data[f.name] for f in fields(cls) if f.name in data})
        except (OSError, ValueError, TypeError) as error:
            raise RecordError(f"{path}: not the record of a demo run: {error}") from error


@dataclass(frozen=True, slots=True)
class Requests:
    """Finished requests, by the time at which the schedule wanted them sent."""

    scheduled_at: Float  # (n,) Unix seconds
    latency_ms: Float  # (n,) from `scheduled_at` to the answer; CLIENT_TIMEOUT_MS for a failure
    ok: NDArray[np.bool_]  # (n,) answered; False = rejected, timed out or broken

    def __len__(self) -> int:
        return len(self.scheduled_at)

    def between(self, start: float, end: float) -> Requests:
        """Return the requests scheduled in [start, end)."""
        rows = (self.scheduled_at >= start) & (self.scheduled_at < end)
        return Requests(self.scheduled_at[rows], self.latency_ms[rows], self.ok[rows])


@dataclass(frozen=True, slots=True)
class Steps:
    """Quantities that hold until they change: `values[i]` from `time[i]` on."""

    time: Float  # (n,) Unix seconds, not falling
    values: Float  # (n, columns)

    def at(self, moments: Float) -> Float:
        """(m, columns): the values in force at each moment; NaN before the first row."""
        index = np.searchsorted(self.time, moments, side="right") - 1
        padded = np.vstack([np.full((1, self.values.shape[1]), np.nan), self.values])
        return padded[index + 1]

    def integral(self, edges: Float) -> Float:
        """(m - 1, columns): the time integral between consecutive edges; nothing before the first row."""
        inside = self.time[(self.time > edges[0]) & (self.time < edges[-1])]
        cuts = np.union1d(edges, inside)
        areas = np.nan_to_num(self.at(cuts[:-1])) * np.diff(cuts)[:, None]
        cumulated = np.vstack([np.zeros((1, areas.shape[1])), np.cumsum(areas, axis=0)])
        return np.diff(cumulated[np.searchsorted(cuts, edges)], axis=0)

    def changes(self, start: float, end: float) -> Float:
        """(m, columns): the differences from row to row, of rows within [start, end)."""
        if len(self.time) < 2:
            return np.zeros((0, self.values.shape[1]))
        differences = np.diff(self.values, axis=0)
        return differences[(self.time[1:] >= start) & (self.time[1:] < end)]


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions of the operator and their times; empty for another contender."""

    time: Float  # (n,) Unix seconds
    by_actor: NDArray[np.bool_]  # (n,) False = a tick between two actions
    placement: NDArray[np.int64]  # (n,) index in PLACEMENTS, in force from then on
    unknown: NDArray[np.int64]  # (n,) required observations that were unknown

    @property
    def placements(self) -> Steps:
        """One column: the placement in force."""
        return Steps(self.time, self.placement.astype(float)[:, None])


@dataclass(frozen=True, slots=True)
class Records:
    """Everything a run left behind."""

    run: Run
    offered_rps: Float  # (seconds,)
    requests: Requests
    replicas: dict[str, Steps]  # pool -> columns REPLICA_COLUMNS
    routes: Steps  # columns ROUTE_COLUMNS
    decisions: Decisions


def read_records(data: Path) -> Records:
    """Read OUT/data. Raises RecordError that names the file."""
    offered = read_columns(data / "offered.csv", OFFERED_COLUMNS)
    requests = read_requests(data / "requests.csv")
    decisions = read_columns(data / "decisions.csv", DECISION_COLUMNS)
    try:
        return Records(
            run=Run.read(data / "run.json"),
            offered_rps=_floats(offered["offered_rps"]),
            requests=requests,
            replicas=read_steps_by(data / "replicas.csv", "pool", POOLS, REPLICA_COLUMNS),
            routes=read_steps(data / "routes.csv", ROUTE_COLUMNS),
            decisions=Decisions(
                _floats(decisions["time"]),
                np.array([kind == "action" for kind in decisions["kind"]], dtype=bool),
                np.array([placement_index(name) for name in decisions["placement"]], dtype=np.int64),
                np.array([int(count) for count in decisions["unknown_required"]], dtype=np.int64),
            ),
        )
    except ValueError as error:
        raise RecordError(f"{data}: a record is not a number: {error}") from error


def placement_index(name: str) -> int:
    """The position in PLACEMENTS; UNKNOWN_PLACEMENT for anything else (no policy places)."""
    return PLACEMENTS.index(name) if name in PLACEMENTS else UNKNOWN_PLACEMENT


def read_columns(path: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """Read all columns of a CSV file, each of which must be there. Raises RecordError that names the file."""
    try:
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            header = reader.fieldnames or []
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    missing = [name for name in names if name not in header]
    if missing:
        raise RecordError(f"{path}: no column {', '.join(missing)}")
    complete = [row for row in rows if None not in row.values()]
    return {name: [row[name] for row in complete] for name in names}


def _floats(texts: list[str]) -> Float:
    return np.array([float(text) for text in texts], dtype=float)


def read_requests(path: Path) -> Requests:
    """Read a `requests.csv`. Raises RecordError that names the file, and ValueError where a cell is not a number."""
    columns = read_columns(path, ("scheduled_at", "latency_ms", "outcome"))
    ok = np.array([outcome == "ok" for outcome in columns["outcome"]], dtype=bool)
    latency_ms = np.where(ok, _floats(columns["latency_ms"]), CLIENT_TIMEOUT_MS)
    return Requests(_floats(columns["scheduled_at"]), latency_ms, ok)


def read_steps(path: Path, names: Sequence[str], begun: float = 0.0) -> Steps:
    """Read columns that hold until their next row, in seconds since `begun` (Unix). Raises RecordError, ValueError."""
    return _steps(read_columns(path, ("time", *names)), names, begun)


def read_steps_by(path: Path, key: str, wanted: Iterable[str], names: Sequence[str]) -> dict[str, Steps]:
    """Read as `read_steps` the rows of each wanted value of the column `key`."""
    columns = read_columns(path, ("time", key, *names))
    rows = {value: [i for i, seen in enumerate(columns[key]) if seen == value] for value in wanted}
    return {
        value: _steps({name: [texts[i] for i in mine] for name, texts in columns.items()}, names)
        for value, mine in rows.items()
    }


def _steps(columns: Mapping[str, list[str]], names: Sequence[str], begun: float = 0.0) -> Steps:
    return Steps(_floats(columns["time"]) - begun, np.column_stack([_floats(columns[name]) for name in names]))


class CsvWriter:
    """Appends rows and flushes each, so that a killed run still has its records."""

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        self._file = path.open("w", newline="")
        self._writer = csv.writer(self._file)
        self.row(*columns)

    def row(self, *values: Any) -> None:
        self._writer.writerow(values)
        self._file.flush()

    def close(self) -> None:
        self._file.close()
