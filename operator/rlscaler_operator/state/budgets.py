"""The RLScalingBudgets that the operator keeps, and which policies each of them selects."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from rlscaler_core.api.budget import BUDGET_KIND, BudgetSpec, parse_budget
from rlscaler_core.api.budget_members import MemberShare
from rlscaler_core.api.budget_status import BudgetStatus, MemberStatus
from rlscaler_core.api.exceptions import InvalidBudgetError
from rlscaler_core.api.policy import plain
from rlscaler_core.api.status import BudgetMembership, Condition
from rlscaler_core.arbiter.types import Loans, no_loans
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.events import Reference

log = logging.getLogger("rlscaler.budgets")

ROUNDS = 64
"""Rounds of grants that are remembered one by one; of older ones the largest grants count."""

Selection = tuple["Budget", MemberShare]
"""A budget that selects a policy, and the entry that does."""


class Counted(NamedTuple):
    """An amount of one resource that was counted on nodes."""

    units: float
    nodes: int
    at: float
    """Unix seconds."""


@dataclass(slots=True, eq=False)
class Budget:
    """One RLScalingBudget as it is shared. The registry writes the upper fields, `loop.share` the lower ones."""

    name: str
    uid: str = ""
    generation: int = -1
    spec: BudgetSpec | None = None
    """None where it cannot be used."""
    invalid: str = ""
    """Why it cannot be used; empty where it can."""
    latest: Mapping[str, Any] = field(default_factory=dict)
    """The status as the API server showed it last: what another operator wrote counts on taking over."""
    told: dict[Key, MemberStatus] = field(default_factory=dict)
    """The grants in that status: what holds for policies of a shard that does not share the budget."""
    counted: dict[str, Counted] = field(default_factory=dict)
    """What was counted on nodes last of each resource with `amountFrom`; absent where it never was."""
    uncounted: dict[str, str] = field(default_factory=dict)
    """Why a resource cannot be counted at the moment; absent where it can."""

    asked: dict[Key, float] = field(default_factory=dict)
    """Replicas that each policy asked for at its last action; NaN = not known."""
    starved: dict[Key, float] = field(default_factory=dict)
    """Seconds for which each policy was granted less than it asked for."""
    names: tuple[Key, ...] = ()
    """The policies that the loans are of, in their order."""
    before: Loans = field(default_factory=lambda: no_loans(0))
    """What the arbiter remembers from the interval before this one."""
    loans: Loans = field(default_factory=lambda: no_loans(0))
    """The same as of now."""
    began_at: float = float("-inf")
    """Monotonic time at which the interval began."""
    shared_at: float | None = None
    """Monotonic time at which it was shared last."""
    published: list[tuple[int, dict[Key, int]]] = field(default_factory=list)
    """Grants that other shards may have read, by the rounds in which they were written, oldest first."""
    found: tuple[object, ...] = ()
    """What the conditions were made from."""
    conditions: list[Condition] = field(default_factory=list)
    written: dict[str, Any] = field(default_factory=dict)
    """The status as it was written last."""
    written_at: float = float("-inf")
    tried_at: float = float("-inf")
    writing: bool = False

    @property
    def reference(self) -> Reference:
        return Reference("", self.name, self.uid, BUDGET_KIND)

    @property
    def pool(self) -> int:
        """The number of the pool that it is of; of one that can be used."""
        assert self.spec is not None
        return POOLS.index(self.spec.pool)

    @property
    def amounts(self) -> tuple[float, ...] | None:
        """How much there is to share of each resource; None where that was never known of one of them."""
        if self.spec is None:
            return None
        counted = {name: found.units for name, found in self.counted.items()}
        found = [counted.get(one.name) if one.amount is None else one.amount for one in self.spec.shared]
        known = tuple(amount for amount in found if amount is not None)
        return known if len(known) == len(found) else None

    @property
    def round(self) -> int:
        """Number of the grants that were written last; 0 before the first."""
        return self.published[-1][0] if self.published else 0

    def publish(self, grants: dict[Key, int]) -> None:
        """Note grants that are about to be written: whether that succeeds or not, they may be read from now on."""
        self.published.append((self.round + 1, grants))
        if len(self.published) > ROUNDS:
            (_, oldest), (number, older), *rest = self.published
            self.published = [
                (number, {key: max(oldest.get(key, 0), older.get(key, 0)) for key in oldest | older}),
                *rest,
            ]

    def readable(self, key: Key, since: int | None) -> int:
        """The largest grant of a policy that its operator may still act by, which has seen that of round `since`."""
        return max((grants.get(key, 0) for number, grants in self.published if number >= (since or 0)), default=0)

    @property
    def is_shared(self) -> bool:
        """True where the status says that the amount is known and shared."""
        known = self.latest.get("amount") is not None or bool(self.latest.get("resources"))
        return self.spec is not None and known

    def show(self, latest: Mapping[str, Any]) -> None:
        """Take in the status as the API server shows it."""
        if latest != self.latest:
            self.latest = latest
            self.told = {(member.namespace, member.policy): member for member in self._status().members}

    def _status(self) -> BudgetStatus:
        try:
            return BudgetStatus.model_validate(plain(self.latest), by_alias=True, by_name=False)
        except ValidationError as error:
            log.warning("RLScalingBudget %s: its status is not readable and begins anew: %s", self.name, error)
            return BudgetStatus()

    def resume(self) -> None:
        """Go on with the last grants that another process wrote; what was asked for last is not known."""
        status = self._status()
        self.asked, self.began_at, self.shared_at = {}, float("-inf"), None
        self.names = tuple((member.namespace, member.policy) for member in status.members)
        self.loans = no_loans(len(self.names))
        self.loans.granted[:] = np.array([member.granted for member in status.members], np.int32)
        self.before = self.loans.copy()
        self.published = []
        if status.round is not None:
            self.published = [(status.round, {(one.namespace, one.policy): one.granted for one in status.members})]
        self.starved = {
            key: float(member.starved_seconds) for key, member in zip(self.names, status.members, strict=True)
        }
        self.conditions = list(status.conditions)
        for one in () if self.spec is None else self.spec.shared:
            found = status.of(one.name)
            if one.amount_from is None or one.name in self.counted or found is None:
                continue
            if found.amount is not None and found.nodes is not None:
                at = (found.counted_at or datetime.now(UTC)).timestamp()
                self.counted[one.name] = Counted(found.amount, found.nodes, at)
        self.written = status.to_dict()


class Budgets:
    """All budgets by name, and the labels of all policies."""

    def __init__(self) -> None:
        self._budgets: dict[str, Budget] = {}
        self._labels: dict[Key, dict[str, str]] = {}
        self._memberships: dict[Key, BudgetMembership] = {}
        """What other shards say of their policies."""
        self.news = False
        """True where another shard has said something that the budgets have not been shared by."""
        self._selected: dict[Key, tuple[Selection, ...]] = {}
        """Which budgets select each policy."""
        self._members: dict[str, dict[Key, MemberShare]] = {}
        """Which policies each budget selects."""
        self._names: dict[Key, tuple[str, ...]] = {}
        """The names of these budgets."""
        self._found = False
        """False where all three have to be found out again."""
        self._revision = 0

    def __iter__(self) -> Iterator[Budget]:
        return iter(list(self._budgets.values()))

    def __len__(self) -> int:
        return len(self._budgets)

    def get(self, name: str) -> Budget | None:
        return self._budgets.get(name)

    def put(self, body: Mapping[str, Any]) -> None:
        """Take in a budget as the API server shows it; a new object of the same name starts with its own status."""
        metadata = body["metadata"]
        name, uid = metadata["name"], metadata.get("uid", "")
        budget, new = self._budgets.get(name), False
        if budget is None or budget.uid != uid:
            budget, new = Budget(name, uid), True
            self._budgets[name] = budget
        budget.show(body.get("status") or {})
        if budget.generation == metadata.get("generation", 0):
            return
        budget.generation, self._found = metadata.get("generation", 0), False
        try:
            parsed = parse_budget(body)
        except InvalidBudgetError as error:
            budget.spec, budget.invalid = None, str(error)
            return
        same = set() if budget.spec is None else _sources(budget.spec) & _sources(parsed.spec)
        for known in (budget.counted, budget.uncounted):
            for gone in known.keys() - {name for name, _ in same}:
                del known[gone]
        budget.spec, budget.invalid = parsed.spec, ""
        if new:
            budget.resume()

    def drop(self, name: str) -> Budget | None:
        self._found = False
        return self._budgets.pop(name, None)

    def membership(self, budget: Budget, key: Key) -> BudgetMembership | None:
        """What the shard of a policy says of it; None where it has not said anything of this budget."""
        found = self._memberships.get(key)
        return found if found is not None and found.name == budget.name else None

    def hear(self, key: Key, status: Mapping[str, Any] | None) -> bool:
        """Take in what the status of a policy says of its budget, None = the policy is gone; True where that is new."""
        said = (status or {}).get("budget")
        try:
            found = None if said is None else BudgetMembership.model_validate(said, by_alias=True, by_name=False)
        except ValidationError as error:
            log.warning("%s/%s: status.budget is not readable: %s", *key, error)
            found = None
        new = found != self._memberships.get(key)
        if new and found is None:
            del self._memberships[key]
        elif found is not None:
            self._memberships[key] = found
        self.news |= new
        return new

    def note(self, key: Key, labels: Mapping[str, str] | None) -> None:
        """Note the labels of a policy; None = it is gone."""
        if self._labels.get(key) != labels:
            self._found = False
            if labels is None:
                self._labels.pop(key, None)
                for budget in self._budgets.values():
                    budget.asked.pop(key, None)
            else:
                self._labels[key] = dict(labels)

    def of(self, key: Key) -> tuple[Selection, ...]:
        """The budgets that select a policy, in the order of their names. Of several none acts on it."""
        self._find()
        return self._selected.get(key, ())

    def names_of(self, key: Key) -> tuple[str, ...]:
        """The names of the budgets that select a policy, in order."""
        self._find()
        return self._names.get(key, ())

    @property
    def revision(self) -> int:
        """Grows whenever a budget may select other policies, or have other terms for them."""
        self._find()
        return self._revision

    def selected(self, budget: Budget) -> Mapping[Key, MemberShare]:
        """The policies that a budget selects, in the order of their names, each with the first entry that does."""
        self._find()
        return self._members.get(budget.name, {})

    def _find(self) -> None:
        """Find out again who selects whom, where anything has changed."""
        if self._found:
            return
        self._found, self._selected, self._members, self._names = True, {}, {}, {}
        self._revision += 1
        usable = sorted((one for one in self._budgets.values() if one.spec is not None), key=lambda one: one.name)
        for key, labels in sorted(self._labels.items()) if usable else ():
            if selections := tuple(_selecting(usable, key, labels)):
                self._selected[key] = selections
                self._names[key] = tuple(budget.name for budget, _ in selections)
                for budget, share in selections:
                    self._members.setdefault(budget.name, {})[key] = share


def _sources(spec: BudgetSpec) -> set[tuple[str, str]]:
    """The resources that are counted, and where."""
    return {(one.name, one.amount_from.model_dump_json()) for one in spec.shared if one.amount_from is not None}


def _selecting(budgets: list[Budget], key: Key, labels: Mapping[str, str]) -> Iterator[Selection]:
    for budget in budgets:
        for share in budget.spec.members if budget.spec is not None else ():
            if share.selects(key[0], labels):
                yield budget, share
                break
