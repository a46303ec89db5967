"""Sharing budgets again, and following a grant from what was asked for to the decision that was made with it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlscaler_core.arbiter.proposals import asked_for
from rlscaler_core.arbiter.types import Grants
from rlscaler_core.decision.batch import Entry, decide_all
from rlscaler_core.decision.exceptions import ColumnError
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.log import Line
from rlscaler_operator.records.sharing import Told, current, granted, told_of

KEPT = 4096
"""Sharings that decisions may still name; a decision is logged soon after the sharing that it names."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SharedAgain:
    """One sharing that was taken again, or why it could not be."""

    line: Line
    differences: tuple[str, ...] = ()
    problem: str = ""


class Sharings:
    """Takes sharings again in the order of the log, and holds decisions against them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Told, Grants]] = OrderedDict()

    def share(self, line: Line, record: Json) -> SharedAgain:
        """Have the arbiter share again, and compare every number; all are whole or go through unchanged."""
        try:
            record = current(record)
            told = told_of(record)
            grants, after = told.again()
        except (RecordError, ColumnError) as error:
            return SharedAgain(line, problem=str(error))
        self._kept[str(record.get("sharing_id"))] = told, grants
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        again = granted(grants, after)
        differences = tuple(
            f"{part}.{name}: {(record.get(part) or {}).get(name)!r} was recorded, {values!r} comes out"
            for part, columns in again.items()
            for name, values in columns.items()
            if (record.get(part) or {}).get(name) != values
        )
        return SharedAgain(line, differences)

    def differences(self, record: Json, entry: Entry) -> tuple[str, ...]:
        """Say where a decision does not follow from the sharing that it names; nothing where that is not in the log."""
        if (found := self._kept.get(record.get("sharing") or "")) is None:
            return ()
        told, grants = found
        key = record.get("namespace"), record.get("name")
        if key not in told.policies:
            return (f"sharing: {key[0]}/{key[1]} is not among the policies of {record['sharing']}",)
        row, pool = told.policies.index(key), POOLS.index(told.pool)
        if not told.acts[row]:
            return ()
        due, bound = int(grants.granted[row]), int(entry.samples.granted_replicas[0, pool])
        wanted = max(int(record["desired"][told.pool]), int(record["base"][told.pool]))
        if bound >= 0 and bound != due:
            return (f"sharing: decided with a grant of {bound}, and {due} was granted",)
        if bound < 0 and wanted > due:
            return (f"sharing: decided without a grant, and only {due} of {wanted} replicas were granted",)
        return self._asked(told.members.asked[row], pool, entry)

    def _asked(self, told: np.float64, pool: int, entry: Entry) -> tuple[str, ...]:
        """Hold what the arbiter was told against what the action asks for without a grant."""
        if entry.kind != "action":
            return ()
        free = np.full_like(entry.samples.granted_replicas, -1)
        decision = decide_all([replace(entry, samples=replace(entry.samples, granted_replicas=free))])[0].decision
        if decision is None:
            return ("sharing: without a grant the decision fails",)
        asked = asked_for(np.array([np.nan]), np.array([True]), decision.desired[:, pool], decision.flags)[0]
        if np.array_equal(asked, told, equal_nan=True):
            return ()
        return (f"sharing: the arbiter was told {told}, and {asked} is asked for",)
