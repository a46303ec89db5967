"""The audit log: one JSON line per decision, enough to take the same decision again."""

from __future__ import annotations

import json
import logging
import logging.handlers
import math
import os
import time
from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from uuid import UUID

import numpy as np

from rlscaler_operator.settings import Settings
from rlscaler_rl.decision.types import (
    GUARDS,
    OBSERVATIONS,
    POOLS,
    Flag,
    Observation,
    Params,
    Samples,
    SignalState,
    State,
)

SCHEMA = "rlscaler.io/decision/v1"


def uuid7(unix_seconds: float | None = None) -> str:
    """A UUID version 7 (RFC 9562): sorts by time. The standard library has it from Python 3.14 on."""
    milliseconds = int((time.time() if unix_seconds is None else unix_seconds) * 1000)
    value = (milliseconds & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 7 << 76
    return str(UUID(int=value & ~(0x3 << 62) | 2 << 62))


class AuditLog:
    """Appends lines to a file and rotates it. Without a file it does nothing."""

    def __init__(self, settings: Settings) -> None:
        self._handler: logging.handlers.RotatingFileHandler | None = None
        if settings.audit_log is not None:
            settings.audit_log.parent.mkdir(parents=True, exist_ok=True)
            self._handler = logging.handlers.RotatingFileHandler(
                settings.audit_log, maxBytes=settings.audit_max_bytes, backupCount=1
            )

    @property
    def enabled(self) -> bool:
        return self._handler is not None

    def write(self, record: Mapping[str, Any]) -> None:
        if self._handler is not None:
            line = json.dumps(record, separators=(",", ":"), allow_nan=False)
            self._handler.emit(logging.LogRecord("rlscaler.audit", logging.INFO, "", 0, line, None, None))

    def close(self) -> None:
        if self._handler is not None:
            self._handler.close()


def row(table: Params | State | Samples, index: int = 0) -> dict[str, Any]:
    """One row as plain JSON: NaN and infinity as null, `null` read back as NaN."""
    return {f.name: plain(getattr(table, f.name)[index]) for f in fields(table)}


def plain(value: Any) -> Any:
    """Numpy to JSON; NaN and infinity to null."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def compact_state(state: State, index: int = 0) -> dict[str, Any]:
    """The state before a decision, without the empty slots of its histories."""
    record = row(state, index)
    history = ~np.isnan(state.rate_time[index])
    record["rate_time"] = plain(state.rate_time[index][history])
    record["rate_value"] = plain(state.rate_value[index][history])
    for time_name, value_name in (("event_time", "event_change"), ("recommendation_time", "recommendation")):
        if np.isnan(getattr(state, time_name)[index]).all():
            record[time_name] = record[value_name] = []
    return record


def observation_record(observation: Observation, index: int = 0) -> dict[str, Any]:
    """The ten numbers with state and age, by name."""
    return {
        name: {
            "value": plain(observation.values[index, i]),
            "fed": plain(observation.fed[index, i]),
            "state": SignalState(int(observation.status[index, i])).name,
            "age_seconds": plain(observation.age_seconds[index, i]),
        }
        for i, name in enumerate(OBSERVATIONS)
    }


def guards_record(base: Any, trail: Any) -> list[dict[str, Any]]:
    """What each stage of the shield made of the replicas: before -> after."""
    before = by_pool(base)
    steps = []
    for name, after_pools in zip(GUARDS, trail, strict=True):
        after = by_pool(after_pools)
        steps.append({"guard": name, "before": before, "after": after})
        before = after
    return steps


def by_pool(values: Any) -> dict[str, Any]:
    return {pool: plain(values[i]) for i, pool in enumerate(POOLS)}


def flag_names(flags: int) -> list[str]:
    """`HeldUnknown`, `Floor`, … in the order of the bits."""
    return ["".join(part.title() for part in (flag.name or "").split("_")) for flag in Flag if flag and flags & flag]
