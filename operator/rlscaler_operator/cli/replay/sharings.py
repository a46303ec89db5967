"""Replay of shared budgets, and the path of a grant from the request to the decision that was made with it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlscaler_core.arbiter.arbitrate import requested
from rlscaler_core.arbiter.types import Grants
from rlscaler_core.decision.batch import Entry, decide_all
from rlscaler_core.decision.exceptions import ColumnError
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.log import Line
from rlscaler_operator.records.sharing import ArbiterInput, granted, input_of

KEPT = 4096
"""Sharings that are remembered. A decision is logged soon after the sharing that it names."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayedSharing:
    """Result of sharing a budget again, or the problem that prevented it."""

    line: Line
    differences: tuple[str, ...] = ()
    problem: str = ""


class Sharings:
    """Replays sharings in the order of the log, and compares decisions with them."""

    def __init__(self) -> None:
        self._shared: OrderedDict[str, tuple[ArbiterInput, Grants]] = OrderedDict()

    def share(self, line: Line, record: Json) -> ReplayedSharing:
        """Let the arbiter share again and compare every number exactly: all are whole or pass through unchanged."""
        try:
            given = input_of(record)
            grants, after = given.arbitrate()
        except (RecordError, ColumnError) as error:
            return ReplayedSharing(line, problem=str(error))
        self._shared[str(record.get("sharing_id"))] = given, grants
        if len(self._shared) > KEPT:
            self._shared.popitem(last=False)
        again = granted(grants, after)
        differences = tuple(
            f"{part}.{name}: {(record.get(part) or {}).get(name)!r} was recorded, {values!r} comes out"
            for part, columns in again.items()
            for name, values in columns.items()
            if (record.get(part) or {}).get(name) != values
        )
        return ReplayedSharing(line, differences)

    def differences(self, record: Json, entry: Entry) -> tuple[str, ...]:
        """Return the differences between a decision and the sharing that it names; none without a record of it."""
        if (shared := self._shared.get(record.get("sharing") or "")) is None:
            return ()
        given, grants = shared
        key = record.get("namespace"), record.get("name")
        if key not in given.policies:
            return (f"sharing: {key[0]}/{key[1]} is not among the policies of {record['sharing']}",)
        row, pool = given.policies.index(key), POOLS.index(given.pool)
        if not given.acts[row]:
            return ()
        due, bound = int(grants.granted[row]), int(entry.samples.granted_replicas[0, pool])
        wanted = max(int(record["desired"][given.pool]), int(record["base"][given.pool]))
        if bound >= 0 and bound != due:
            return (f"sharing: decided with a grant of {bound}, and {due} was granted",)
        if bound < 0 and wanted > due:
            return (f"sharing: decided without a grant, and only {due} of {wanted} replicas were granted",)
        return self._requested(given.members.asked[row], pool, entry)

    def _requested(self, told: np.float64, pool: int, entry: Entry) -> tuple[str, ...]:
        """Compare the request that the arbiter got with the replicas that the action asks for without a grant."""
        if entry.kind != "action":
            return ()
        free = np.full_like(entry.samples.granted_replicas, -1)
        decision = decide_all([replace(entry, samples=replace(entry.samples, granted_replicas=free))])[0].decision
        if decision is None:
            return ("sharing: without a grant the decision fails",)
        request = requested(np.array([np.nan]), np.array([True]), decision.desired[:, pool], decision.flags)[0]
        if np.array_equal(request, told, equal_nan=True):
            return ()
        return (f"sharing: the arbiter was told {told}, and {request} is asked for",)
