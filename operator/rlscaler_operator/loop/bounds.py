"""What policies of budgets ask for, and which of their decisions a grant bounds: for all of a batch at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from rlscaler_core.arbiter.proposals import asked_for, is_bound
from rlscaler_core.decision.batch import Outcome
from rlscaler_core.decision.types import GPU, Decision
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.loop.members import Row
from rlscaler_operator.reporting.grants import Shared
from rlscaler_operator.state.budgets import Budget
from rlscaler_operator.state.policy import Policy


class Limit(NamedTuple):
    """What bounds one decision."""

    granted: tuple[int, int]
    """Replicas by pool; -1 = not bounded."""
    text: str
    """What was asked for, what is granted and why it is not more."""
    sharing: str = ""
    """ID of the record of how the budget was shared; empty where none is kept."""


class Proposal(NamedTuple):
    """A policy of one budget, and what was decided for it without a grant."""

    budget: Budget
    policy: Policy
    outcome: Outcome
    decision: Decision
    pool: int
    """The number of the pool that the budget is of."""


class Bound(NamedTuple):
    """What a policy is granted."""

    proposal: Proposal
    granted: int
    """Replicas in the pool of the budget."""
    acts: bool
    """Whether the policy keeps to it; otherwise only its virtual service does."""
    text: Callable[[], str]
    """What was asked for, what is granted and why it is not more."""
    sharing: str = ""
    """ID of the record of how the budget was shared; empty where none is kept."""


class Shares(NamedTuple):
    """What sharing came to for the policies of a batch."""

    limits: dict[Key, Limit]
    """What bounds a decision, for the policies that want or run more than their grant."""
    compared: dict[Key, tuple[int, int]]
    """Replicas by pool that a policy's virtual service may have: the grant, or of one in Shadow the grant that it would
    have; -1 = any number."""


def note(proposals: Sequence[Proposal]) -> None:
    """Remember what policies ask for: of an action, and what the floor raises it to until the next one."""
    before = np.array([one.budget.asked.get(one.policy.key, math.nan) for one in proposals])
    action = np.array([one.outcome.entry.kind == "action" for one in proposals], bool)
    desired = np.array([one.decision.desired[0, one.pool] for one in proposals], np.int32)
    flags = np.array([one.decision.flags[0] for one in proposals], np.int32)
    for one, asked in zip(proposals, asked_for(before, action, desired, flags).tolist(), strict=True):
        one.budget.asked[one.policy.key] = asked


def bounds_of(asking: Mapping[Key, Proposal], rows: Sequence[Row], shared: Shared) -> Iterator[Bound]:
    """What those members of a budget that was shared here are granted that ask now; in Shadow what they would be."""
    for i, (row, granted) in enumerate(zip(rows, shared.grants.granted.tolist(), strict=True)):
        if (proposal := asking.get(row.key)) is None:
            continue
        proposal.outcome.sharing = shared.sharing_id
        if not row.acts and (would := shared.would_be(i)) is not None:
            granted, proposal.outcome.granted = would, shared.would_text(i)
        yield Bound(proposal, granted, row.acts, partial(shared.text, i), shared.sharing_id)


def shares_of(bounds: Sequence[Bound]) -> Shares:
    """What bounds the virtual services of all, and the decisions of those that want or run more than their grant."""
    proposals = [one.proposal for one in bounds]
    desired = np.array([one.decision.desired[0, one.pool] for one in proposals], np.int32)
    base = np.array([one.decision.base[0, one.pool] for one in proposals], np.int32)
    granted = np.array([one.granted for one in bounds], np.int32)
    bound = is_bound(desired, base, granted, np.array([one.acts for one in bounds], bool)).tolist()
    shares = Shares({}, {})
    for one, binds in zip(bounds, bound, strict=True):
        key = one.proposal.policy.key
        replicas = (one.granted, -1) if one.proposal.pool == GPU else (-1, one.granted)
        shares.compared[key] = replicas
        if binds:
            shares.limits[key] = Limit(replicas, one.text(), one.sharing)
    return shares
