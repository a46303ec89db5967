"""The RLScalingBudgets that the operator keeps, and the policies that each of them selects."""

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
from rlscaler_core.api.status import Condition
from rlscaler_core.api.status_memory import BudgetMembership
from rlscaler_core.arbiter.types import Loans, no_loans
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.events import Reference
from rlscaler_operator.exceptions import ShareError
from rlscaler_operator.state.operators import OperatorClaim, Standing

log = logging.getLogger("rlscaler.budgets")

ROUNDS = 64
"""Rounds of grants that are remembered one by one; older rounds are joined to their largest grants."""


class NodeCount(NamedTuple):
    """An amount of one resource that was counted on nodes."""

    units: float
    nodes: int
    at: float
    """Unix seconds."""


@dataclass(slots=True, eq=False)
class Budget:
    """One RLScalingBudget. The registry writes the fields up to `status_members`, `loop.count` the counts, and
    `loop.grants` and the reporter the others.
    """

    name: str
    uid: str = ""
    generation: int = -1
    spec: BudgetSpec | None = None
    """The last one that could be read; None where none could."""
    invalid: str = ""
    """Why the present one cannot be read; empty where it can."""
    latest: Mapping[str, Any] = field(default_factory=dict)
    """The status as the API server showed it last: on taking over, the status of another operator counts."""
    status_members: dict[Key, MemberStatus] = field(default_factory=dict)
    """The grants in that status: they hold for policies of a shard that does not share the budget."""
    incumbents: dict[Key, MemberShare] = field(default_factory=dict)
    """The members as it was shared last, with their entries: another label alone takes none of them out."""
    shared_generation: int = -1
    """Generation of the spec that it was shared by last."""
    guaranteed: set[Key] = field(default_factory=set)
    """The members whose guarantee counted when it was shared last."""
    counts: dict[str, NodeCount] = field(default_factory=dict)
    """The last count on nodes of each resource with `amountFrom`; absent before the first count."""
    count_errors: dict[str, str] = field(default_factory=dict)
    """Why a resource cannot be counted at the moment; absent where it can."""
    failed: ShareError | None = None
    """Why it could not be shared last; None where it could."""
    failed_members: dict[Key, ShareError] = field(default_factory=dict)
    """Policies whose request could not be worked out: they are held, and their running replicas count."""

    standing: Standing = field(default_factory=Standing)
    """This operator towards others with another Lease that share it."""
    asked_again_at: float = float("-inf")
    """Monotonic time from which another operator may be asked again."""
    requested: dict[Key, float] = field(default_factory=dict)
    """Replicas that each policy requested at its last action; NaN = unknown."""
    starved_seconds: dict[Key, float] = field(default_factory=dict)
    """Seconds for which each policy was granted less than it requested."""
    members: tuple[Key, ...] = ()
    """The policies of the rows of the loans."""
    loans_before: Loans = field(default_factory=lambda: no_loans(0))
    """The arbiter's memory from the interval before this one."""
    loans: Loans = field(default_factory=lambda: no_loans(0))
    """The arbiter's memory as of now."""
    interval_began_at: float = float("-inf")
    """Monotonic time."""
    shared_at: float | None = None
    """Monotonic time at which it was shared last."""
    published: list[tuple[int, dict[Key, int]]] = field(default_factory=list)
    """Grants that other shards may have read, by the rounds in which they were written, oldest first."""
    reported: tuple[object, ...] = ()
    """The inputs of the conditions in the last report."""
    conditions: list[Condition] = field(default_factory=list)
    written: dict[str, Any] = field(default_factory=dict)
    """The status as it was written last."""
    written_at: float = float("-inf")
    tried_at: float = float("-inf")
    writing: bool = False

    @property
    def claim(self) -> OperatorClaim:
        """The operator that shares it, by its status."""
        return OperatorClaim.of(self.latest)

    @property
    def reference(self) -> Reference:
        return Reference("", self.name, self.uid, BUDGET_KIND)

    @property
    def pool(self) -> int:
        """The number of its pool in `POOLS`; only for a usable budget."""
        assert self.spec is not None
        return POOLS.index(self.spec.pool)

    @property
    def amounts(self) -> tuple[float, ...] | None:
        """The units of each resource to share; None where the units of some resource were never known."""
        if self.spec is None:
            return None
        counted = {name: count.units for name, count in self.counts.items()}
        amounts = [
            counted.get(resource.name) if resource.amount is None else resource.amount for resource in self.spec.shared
        ]
        known = tuple(amount for amount in amounts if amount is not None)
        return known if len(known) == len(amounts) else None

    @property
    def round(self) -> int:
        """Number of the grants that were written last; 0 before the first."""
        return self.published[-1][0] if self.published else 0

    def add_round(self, grants: dict[Key, int]) -> None:
        """Note grants that are about to be written: from now on others may read them, even if the write fails."""
        self.published.append((self.round + 1, grants))
        if len(self.published) > ROUNDS:
            (_, oldest), (number, older), *rest = self.published
            self.published = [
                (number, {key: max(oldest.get(key, 0), older.get(key, 0)) for key in oldest | older}),
                *rest,
            ]

    def largest_readable(self, key: Key, since: int | None) -> int:
        """Return the largest grant by which a policy's operator may still act that has seen the grants of `since`."""
        return max((grants.get(key, 0) for number, grants in self.published if number >= (since or 0)), default=0)

    @property
    def is_shared(self) -> bool:
        """True where the status says that the amount is known and shared."""
        known = self.latest.get("amount") is not None or bool(self.latest.get("resources"))
        return self.spec is not None and known

    def read_status(self, latest: Mapping[str, Any]) -> None:
        """Take in the status as the API server shows it."""
        if latest != self.latest:
            self.latest = latest
            status = self._status()
            self.status_members = {(member.namespace, member.policy): member for member in status.members}
            if self.shared_at is None:
                self._find_incumbents(status)

    def _find_incumbents(self, status: BudgetStatus) -> None:
        """Take over the members of a status that another process wrote."""
        entries = {} if self.spec is None else {share.name: share for share in self.spec.members}
        known = {key: entries.get(member.member) for key, member in self.status_members.items()}
        self.incumbents = {key: share for key, share in known.items() if share is not None}
        self.shared_generation = -1 if status.observed_generation is None else status.observed_generation

    def shared(self, members: Mapping[Key, MemberShare], guaranteed: set[Key]) -> None:
        """Note the members that share it now, and those with a guarantee."""
        self.incumbents, self.guaranteed, self.shared_generation = dict(members), guaranteed, self.generation

    def _status(self) -> BudgetStatus:
        try:
            return BudgetStatus.model_validate(plain(self.latest), by_alias=True, by_name=False)
        except ValidationError as error:
            log.warning("RLScalingBudget %s: its status is not readable and begins anew: %s", self.name, error)
            return BudgetStatus()

    def resume(self) -> None:
        """Go on with the last grants that another process wrote; the requests are unknown until the next actions."""
        status = self._status()
        self.requested, self.interval_began_at, self.shared_at = {}, float("-inf"), None
        self._find_incumbents(status)
        self.members = tuple((member.namespace, member.policy) for member in status.members)
        self.loans = no_loans(len(self.members))
        self.loans.granted[:] = np.array([member.granted for member in status.members], np.int32)
        self.loans_before = self.loans.copy()
        self.published = []
        if status.round is not None:
            self.published = [
                (status.round, {(member.namespace, member.policy): member.granted for member in status.members})
            ]
        self.starved_seconds = {
            key: float(member.starved_seconds) for key, member in zip(self.members, status.members, strict=True)
        }
        self.conditions = list(status.conditions)
        for resource in () if self.spec is None else self.spec.shared:
            shown = status.of(resource.name)
            if resource.amount_from is None or resource.name in self.counts or shown is None:
                continue
            if shown.amount is not None and shown.nodes is not None:
                at = (shown.counted_at or datetime.now(UTC)).timestamp()
                self.counts[resource.name] = NodeCount(shown.amount, shown.nodes, at)
        self.written = status.to_dict()


class BudgetRegistry:
    """All budgets by name, the labels of all policies, and the policies that each budget selects."""

    def __init__(self) -> None:
        self._budgets: dict[str, Budget] = {}
        self._labels: dict[Key, dict[str, str]] = {}
        self._memberships: dict[Key, BudgetMembership] = {}
        """`status.budget` of the policies of other shards."""
        self.memberships_changed = False
        """True where some of these has changed since the budgets were shared."""
        # The next three follow from specs and labels, and are computed again after either changes.
        self._budgets_of: dict[Key, tuple[tuple[Budget, MemberShare], ...]] = {}
        self._policies_of: dict[str, dict[Key, MemberShare]] = {}
        self._names_of: dict[Key, tuple[str, ...]] = {}
        self._current = False
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
        budget.read_status(body.get("status") or {})
        if budget.generation == metadata.get("generation", 0):
            return
        budget.generation, self._current = metadata.get("generation", 0), False
        try:
            parsed = parse_budget(body)
        except InvalidBudgetError as error:
            # The limits before the edit stay in force: without any its policies would all go above them at once.
            budget.invalid = str(error)
            return
        # A count stays valid only for a resource that is still counted on the same nodes.
        same = set() if budget.spec is None else _counted_on(budget.spec) & _counted_on(parsed.spec)
        for by_resource in (budget.counts, budget.count_errors):
            for gone in by_resource.keys() - {name for name, _ in same}:
                del by_resource[gone]
        budget.spec, budget.invalid = parsed.spec, ""
        if new:
            budget.resume()

    def drop(self, name: str) -> Budget | None:
        self._current = False
        return self._budgets.pop(name, None)

    def membership(self, budget: Budget, key: Key) -> BudgetMembership | None:
        """Return `status.budget` of a policy of another shard; None where it does not name this budget."""
        membership = self._memberships.get(key)
        return membership if membership is not None and membership.name == budget.name else None

    def read_membership(self, key: Key, status: Mapping[str, Any] | None) -> bool:
        """Take in the status of a policy of another shard, None = the policy is gone; return whether it changed."""
        written = (status or {}).get("budget")
        membership: BudgetMembership | None = None
        try:
            if written is not None:
                membership = BudgetMembership.model_validate(written, by_alias=True, by_name=False)
        except ValidationError as error:
            log.warning("%s/%s: status.budget is not readable: %s", *key, error)
        changed = membership != self._memberships.get(key)
        if membership is not None:
            self._memberships[key] = membership
        else:
            self._memberships.pop(key, None)
        self.memberships_changed |= changed
        return changed

    def set_labels(self, key: Key, labels: Mapping[str, str] | None) -> None:
        """Note the labels of a policy; None = it is gone."""
        if self._labels.get(key) != labels:
            self._current = False
            if labels is None:
                self._labels.pop(key, None)
                for budget in self._budgets.values():
                    budget.requested.pop(key, None)
            else:
                self._labels[key] = dict(labels)

    def budgets_of(self, key: Key) -> tuple[tuple[Budget, MemberShare], ...]:
        """Return the budgets that select a policy, by name, each with the entry that does. Of several none acts."""
        self._refresh()
        return self._budgets_of.get(key, ())

    def names_of(self, key: Key) -> tuple[str, ...]:
        """Return the names of the budgets that select a policy, in order."""
        self._refresh()
        return self._names_of.get(key, ())

    @property
    def revision(self) -> int:
        """Grows whenever a budget may select other policies, or have other terms for them."""
        self._refresh()
        return self._revision

    def policies_of(self, budget: Budget) -> Mapping[Key, MemberShare]:
        """Return the policies that a budget selects, by name, each with the first entry that does."""
        self._refresh()
        return self._policies_of.get(budget.name, {})

    def _refresh(self) -> None:
        """Match budgets and policies again, where a spec or a label has changed."""
        if self._current:
            return
        self._current, self._budgets_of, self._policies_of, self._names_of = True, {}, {}, {}
        self._revision += 1
        usable = sorted((b for b in self._budgets.values() if b.spec is not None), key=lambda budget: budget.name)
        for key, labels in sorted(self._labels.items()) if usable else ():
            if selecting := tuple(_selecting(usable, key, labels)):
                self._budgets_of[key] = selecting
                self._names_of[key] = tuple(budget.name for budget, _ in selecting)
                for budget, share in selecting:
                    self._policies_of.setdefault(budget.name, {})[key] = share


def _counted_on(spec: BudgetSpec) -> set[tuple[str, str]]:
    """Return the resources that are counted, each with the nodes as JSON."""
    return {
        (resource.name, resource.amount_from.model_dump_json())
        for resource in spec.shared
        if resource.amount_from is not None
    }


def _selecting(budgets: list[Budget], key: Key, labels: Mapping[str, str]) -> Iterator[tuple[Budget, MemberShare]]:
    for budget in budgets:
        for share in budget.spec.members if budget.spec is not None else ():
            if share.selects(key[0], labels):
                yield budget, share
                break
