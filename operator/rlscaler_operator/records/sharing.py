"""One sharing of an RLScalingBudget as a line of the audit log: the arbiter's inputs and its grants.

A line is valid until the inputs change. Decisions name it, so that a replay can follow a grant from the requests of all
members to the decision that was made with it.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.arbiter.rules import RULES, RuleName
from rlscaler_core.arbiter.types import NO_RESOURCE, Budgets, Grants, Loans, Members, Reason, make_budgets, make_members
from rlscaler_core.decision.exceptions import ColumnError
from rlscaler_core.decision.types import POOLS, Rows
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.audit import AuditLog, uuid7
from rlscaler_operator.records.record import runtime
from rlscaler_operator.records.rows import Json, plain

SCHEMA = "rlscaler.io/sharing/v2"

ONE_RESOURCE = "rlscaler.io/sharing/v1"
"""Schema of releases whose RLScalingBudgets had one resource: a column has a number in place of a list of one."""

OF_RESOURCES = {"shared": ("amount",), "members": ("units", "guaranteed", "ceiling")}
"""Columns with a number for each resource."""

Table = TypeVar("Table", bound=Rows)


class BudgetObject(NamedTuple):
    """Identity of a shared RLScalingBudget."""

    name: str
    uid: str
    generation: int


@dataclass(frozen=True, slots=True)
class Told:
    """Inputs of the arbiter for one RLScalingBudget; `budgets` has one row, the other tables one for each policy."""

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
    """Loans of the interval before."""

    def same(self, other: Told | None) -> bool:
        """Return True where `other` has the same inputs."""
        if other is None or self._names() != other._names():
            return False
        pairs = ((self.budgets, other.budgets), (self.members, other.members), (self.loans, other.loans))
        return all(alike(first, second) for first, second in pairs)

    def _names(self) -> tuple[object, ...]:
        return self.rule, self.pool, self.resources, self.policies, self.acts

    def again(self) -> tuple[Grants, Loans]:
        """Let the arbiter share once more. Raises ColumnError."""
        return arbitrate(self.rule, self.budgets, self.members, self.loans)


class SharingLog:
    """Writes a line when the arbiter's inputs for an RLScalingBudget change."""

    def __init__(self, audit: AuditLog | None) -> None:
        """Without an enabled audit log nothing is written."""
        self._audit = audit if audit is not None and audit.enabled else None
        self._last: dict[str, tuple[BudgetObject, Told, str]] = {}

    def note(self, budget: BudgetObject, told: Told, grants: Grants, after: Loans) -> str:
        """Return the ID of the line about this sharing; the line is written where it is new. Empty without a log."""
        if self._audit is None:
            return ""
        last = self._last.get(budget.name)
        if last is not None and last[0] == budget and told.same(last[1]):
            return last[2]
        now = time.time()
        sharing_id = uuid7(now)
        self._last[budget.name] = budget, told, sharing_id
        self._audit.write(partial(sharing_line, sharing_id, now, budget, told, grants, after))
        return sharing_id

    def forget(self, names: Collection[str]) -> None:
        """Forget all RLScalingBudgets except these."""
        self._last = {name: last for name, last in self._last.items() if name in names}


def sharing_line(
    sharing_id: str, unix_seconds: float, budget: BudgetObject, told: Told, grants: Grants, after: Loans
) -> Json:
    """Return the record of one sharing."""
    return {
        "schema": SCHEMA,
        "sharing_id": sharing_id,
        "time": unix_seconds,
        "budget": budget.name,
        "uid": budget.uid,
        "generation": budget.generation,
        "runtime": runtime(),
        "rule": told.rule,
        "pool": told.pool,
        "resources": list(told.resources),
        "policies": ["/".join(key) for key in told.policies],
        "acts": list(told.acts),
        "shared": _columns(told.budgets),
        "members": _columns(told.members),
        "loans": _columns(told.loans),
        **granted(grants, after),
    }


def granted(grants: Grants, after: Loans) -> Json:
    """Return the part of a record that a replay has to reproduce."""
    return {"grants": _columns(grants), "after": _columns(after)}


def current(record: Json) -> Json:
    """Return a record in the schema of this release. Raises RecordError."""
    if record.get("schema") == SCHEMA:
        return record
    if record.get("schema") != ONE_RESOURCE:
        raise RecordError(
            f"schema is {record.get('schema')!r}; this release reads {SCHEMA} and, with one resource, {ONE_RESOURCE}"
        )
    try:
        tables = {
            part: record[part] | {name: [[number] for number in record[part][name]] for name in names}
            for part, names in OF_RESOURCES.items()
        }
        whole = [reason == Reason.ALL for reason in record["grants"]["reason"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"a sharing is malformed: {error}; replay it with the release that wrote it") from error
    grants = record["grants"] | {"resource": [NO_RESOURCE if granted_all else 0 for granted_all in whole]}
    return record | tables | {"schema": SCHEMA, "resources": [""], "grants": grants}


def told_of(record: Json) -> Told:
    """Read the arbiter's inputs from a record in the schema of this release. Raises RecordError."""
    try:
        m = len(record["policies"])
        rule, pool = record["rule"], record["pool"]
        if rule not in RULES or pool not in POOLS:
            raise RecordError(f"rule {rule!r} or pool {pool!r} is not known: replay it with the release that wrote it")
        columns = {name: np.asarray(column, np.int32) for name, column in record["loans"].items()}
        lengths = {len(column) for table in ("members", "loans") for column in record[table].values()}
        told = Told(
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
    wide = {told.budgets.amount.shape[1], told.members.units.shape[1]}
    if lengths - {m} or len(told.acts) != m or wide != {len(told.resources)}:
        raise RecordError("a sharing is malformed: its columns have different lengths")
    return told


def _key(text: str) -> tuple[str, str]:
    namespace, name = text.split("/")
    return namespace, name


def _columns(table: Rows) -> Json:
    return {field.name: plain(getattr(table, field.name)) for field in fields(table)}


def _arrays(columns: dict[str, Any]) -> dict[str, Any]:
    """Return JSON as arrays: None and "inf" become floats."""
    return {name: np.asarray(column, np.float64) for name, column in columns.items()}


def alike(first: Table, second: Table) -> bool:
    """Return True where two tables have the same rows; NaN equals NaN."""
    columns = ((getattr(first, field.name), getattr(second, field.name)) for field in fields(first))
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in columns)
