"""Readers of files that other processes are still writing, and figures of the present from them."""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlscaler_core.decision.forecaster import outlook
from rlscaler_core.decision.forecaster.learn import RECOVERY_SECONDS
from rlscaler_core.decision.forecaster.storage import from_text
from rlscaler_core.decision.headroom import Above, in_words
from rlscaler_dev.demo.settings import CLIENT_TIMEOUT_MS

RECENT_SECONDS = 10.0
"""The live figures are about the requests that finished within this time."""


class Tail:
    """The lines of a growing file, each given once and only when complete; a file that is not there yet has none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def lines(self) -> list[str]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        return complete.decode(errors="replace").splitlines()


class LoadFigures(NamedTuple):
    """Figures of the clients over the last RECENT_SECONDS; NaN where nothing finished."""

    finished_rps: float
    p95_ms: float
    late_percent: float
    """Failed or slower than the SLO, of all that finished."""


@dataclass(slots=True)
class LiveLoad:
    """Follows `requests.csv` while the load generator writes it."""

    tail: Tail
    slo_ms: float
    total: int = 0
    missed: int = 0
    """Requests since the start that failed or were slower than the SLO."""
    _columns: list[str] = field(default_factory=list)
    _recent: deque[tuple[float, float, bool]] = field(default_factory=deque)  # (finished, latency, missed)

    def figures(self, now: float) -> LoadFigures:
        """Read new lines and return the figures at `now` (Unix seconds)."""
        for row in csv.reader(self.tail.lines()):
            self._take(row)
        while self._recent and self._recent[0][0] < now - RECENT_SECONDS:
            self._recent.popleft()
        if not self._recent:
            return LoadFigures(0.0, float("nan"), float("nan"))
        latency = np.array([entry[1] for entry in self._recent])
        missed = np.array([entry[2] for entry in self._recent])
        return LoadFigures(
            len(latency) / RECENT_SECONDS, float(np.percentile(latency, 95)), 100 * float(np.mean(missed))
        )

    def _take(self, row: list[str]) -> None:
        if not self._columns:
            self._columns = row
            return
        values = dict(zip(self._columns, row, strict=True))
        latency = float(values["latency_ms"])
        failed = values["outcome"] != "ok"
        missed = failed or latency > self.slo_ms
        self.total += 1
        self.missed += missed
        finished = float(values["scheduled_at"]) + latency / 1000
        self._recent.append((finished, CLIENT_TIMEOUT_MS if failed else latency, missed))


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """One line of the audit log; `words.action_words` puts it into words."""

    time: float
    """Unix seconds."""
    kind: str
    """`action`: the actor decided; `floor`: between two actions, only the floor and the weights may move."""
    base: Mapping[str, int]
    """Replicas before the decision, by pool."""
    desired: Mapping[str, int]
    placement: str
    """Placement in force after the decision: PreferGPU, Balanced or PreferCPU."""
    guards: tuple[str, ...]
    """Changes by the shield, as `floor gpu 1→3`."""
    unknown_required: int
    """Required observations that were unknown."""
    jump: float
    """Probability of a jump of the load within a cold start and an interval, as learned; 0 where nothing is."""
    headroom: str = ""
    """Headroom that the network has made, in words, and the replicas planned with it; empty for another actor."""


def read_decision(line: str) -> DecisionLine:
    """Raises ValueError or KeyError for a line that is not a decision."""
    record = json.loads(line)
    return DecisionLine(
        time=float(record["time"]),
        kind=record["kind"],
        base=record["base"],
        desired=record["desired"],
        placement=record["placement"],
        guards=tuple(guard_texts(record["guards"])),
        unknown_required=len(record["unknown_required"]),
        jump=_expected_jump(record),
        headroom=_headroom(record),
    )


def _headroom(record: dict[str, Any]) -> str:
    if (pools := record.get("headroom")) is None:
        return ""
    words = in_words({pool: Above(**value) for pool, value in pools.items()})
    plans = [guard["after"] for guard in record["guards"] if guard["guard"] == "proposal"]
    return f"{words}: {plans[0]['gpu']} GPU and {plans[0]['cpu']} CPU planned" if plans else words


def _expected_jump(record: dict[str, Any]) -> float:
    text = record["state"].get("forecaster")
    if text is None:
        return 0.0
    recent, calendar = from_text(text)
    params = record["params"]
    ahead = max(params["cold_start_seconds"]) + params["interval_seconds"]
    jumped = outlook.recent_jump(recent, RECOVERY_SECONDS)
    return float(
        outlook.announced(calendar, np.array([float(record["time"])]), np.array([ahead]), jumped).probability[0]
    )


def guard_texts(guards: list[dict[str, Any]]) -> list[str]:
    """The guards that changed something; the actor's own proposal is none."""
    return [
        f"{guard['guard']} {pool} {guard['before'][pool]}→{guard['after'][pool]}"
        for guard in guards
        if guard["guard"] != "proposal"
        for pool in ("gpu", "cpu")
        if guard["before"][pool] != guard["after"][pool]
    ]
