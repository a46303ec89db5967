"""Line of the audit log for one sharing of a budget: the input of the arbiter, and its grants.

A line stands for as long as the input stays the same; decisions name it, so that a replay can follow a grant from the
requests of all members to the decision that was made with it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.arbiter.rules import RULES, RuleName
from rlscaler_core.arbiter.types import (
    Budgets,
    Grants,
    Loans,
    Members,
    make_budgets,
    make_members,
    same_rows,
)
from rlscaler_core.decision.exceptions import ColumnError
from rlscaler_core.decision.types import POOLS, Rows
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.audit import AuditLog, uuid7
from rlscaler_operator.records.record import runtime
from rlscaler_operator.records.rows import Json, plain

SCHEMA = "rlscaler.io/sharing/v2"


class BudgetObject(NamedTuple):
    """Identity of a shared RLScalingBudget."""

    name: str
    uid: str
    generation: int


@dataclass(frozen=True, slots=True)
class ArbiterInput:
    """Everything that the grants of one budget follow from; `budgets` has one row, the other tables one per policy."""

    rule: RuleName
    pool: str
    resources: tuple[str, ...]
    """Names, in the order of the columns."""
    policies: tuple[tuple[str, str], ...]
    """Namespace and name, in the order of the rows."""
    acts: tuple[bool, ...]
    """Whether each policy acts. A policy that does not act takes its part of the budget and is not bound by it."""
    budgets: Budgets
    members: Members
    loans: Loans
    """The arbiter's memory from the interval before."""

    def same(self, other: ArbiterInput) -> bool:
        """Return whether the grants of `other` follow from exactly the same input."""
        tables = ("budgets", "members", "loans")
        return self._names() == other._names() and all(
            same_rows(getattr(self, name), getattr(other, name)) for name in tables
        )

    def _names(self) -> tuple[object, ...]:
        return self.rule, self.pool, self.resources, self.policies, self.acts

    def arbitrate(self) -> tuple[Grants, Loans]:
        """Have the arbiter share once more. Raises ColumnError."""
        return arbitrate(self.rule, self.budgets, self.members, self.loans)


class SharingLog:
    """Writes a line where the arbiter's input for a budget has changed."""

    def __init__(self, audit: AuditLog | None) -> None:
        """Without an enabled `audit` log nothing is written."""
        self._audit = audit if audit is not None and audit.enabled else None
        self._last: dict[str, tuple[BudgetObject, ArbiterInput, str]] = {}

    def note(self, budget: BudgetObject, given: ArbiterInput, grants: Grants, after: Loans) -> str:
        """Return the ID of the line of these grants; write the line where it is a new one."""
        if self._audit is None:
            return ""
        last = self._last.get(budget.name)
        if last is not None and last[0] == budget and given.same(last[1]):
            return last[2]
        now = time.time()
        sharing_id = uuid7(now)
        self._last[budget.name] = budget, given, sharing_id
        self._audit.write(partial(sharing_line, sharing_id, now, budget, given, grants, after))
        return sharing_id

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the last lines of all budgets but these."""
        self._last = {name: last for name, last in self._last.items() if name in names}


def sharing_line(
    sharing_id: str, unix_seconds: float, budget: BudgetObject, given: ArbiterInput, grants: Grants, after: Loans
) -> Json:
    """Return the record of how one budget was shared."""
    return {
        "schema": SCHEMA,
        "sharing_id": sharing_id,
        "time": unix_seconds,
        "budget": budget.name,
        "uid": budget.uid,
        "generation": budget.generation,
        "runtime": runtime(),
        "rule": given.rule,
        "pool": given.pool,
        "resources": list(given.resources),
        "policies": ["/".join(key) for key in given.policies],
        "acts": list(given.acts),
        "shared": _columns(given.budgets),
        "members": _columns(given.members),
        "loans": _columns(given.loans),
        **granted(grants, after),
    }


def granted(grants: Grants, after: Loans) -> Json:
    """Return the part of a record that a replay must reproduce."""
    return {"grants": _columns(grants), "after": _columns(after)}


def input_of(record: Json) -> ArbiterInput:
    """Return the arbiter's input in a record. Raises RecordError."""
    if record.get("schema") != SCHEMA:
        raise RecordError(f"schema is {record.get('schema')!r}, not {SCHEMA}: replay it with the release that wrote it")
    try:
        m = len(record["policies"])
        rule, pool = record["rule"], record["pool"]
        if rule not in RULES or pool not in POOLS:
            raise RecordError(f"rule {rule!r} or pool {pool!r} is not known: replay it with the release that wrote it")
        columns = {name: np.asarray(column, np.int32) for name, column in record["loans"].items()}
        lengths = {len(column) for table in ("members", "loans") for column in record[table].values()}
        given = ArbiterInput(
            rule,
            pool,
            tuple(map(str, record["resources"])),
            tuple(_key(text) for text in record["policies"]),
            tuple(bool(acts) for acts in record["acts"]),
            make_budgets(1, **_arrays(record["shared"])),
            make_members(m, **_arrays(record["members"])),
            Loans(**columns),
        )
    except (KeyError, TypeError, ValueError, AttributeError, ColumnError) as error:
        raise RecordError(f"a sharing is malformed: {error}; replay it with the release that wrote it") from error
    wide = {given.budgets.amount.shape[1], given.members.units.shape[1]}
    if lengths - {m} or len(given.acts) != m or wide != {len(given.resources)}:
        raise RecordError("a sharing is malformed: its columns have different lengths")
    return given


def _key(text: str) -> tuple[str, str]:
    namespace, name = text.split("/")
    return namespace, name


def _columns(table: Rows) -> Json:
    return {field.name: plain(getattr(table, field.name)) for field in fields(table)}


def _arrays(columns: dict[str, Any]) -> dict[str, Any]:
    """Return JSON as arrays: None and "inf" become floats."""
    return {name: np.asarray(column, np.float64) for name, column in columns.items()}
