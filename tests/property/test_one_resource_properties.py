"""With one resource everything that comes out is what came out before there could be several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.arbiter.rules import RULES, RuleName
from rlscaler_core.arbiter.types import NO_RESOURCE, Budgets, Loans, Members, Reason
from tests.harness.one_resource import Answer, Member, share
from tests.property.test_arbiter_properties import random_case


def stated(rule: str, budgets: Budgets, members: Members, loans: Loans) -> Answer:
    """What the plain statement gives for one budget."""
    columns = (
        members.asked,
        members.current,
        members.minimum,
        members.units[:, 0],
        members.guaranteed[:, 0],
        members.ceiling[:, 0],
        members.weight,
        members.priority,
        loans.granted,
        loans.waited_intervals,
        loans.short_intervals,
    )
    rows = [Member(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    first = float(budgets.amount[0, 0]), bool(budgets.lend[0]), int(budgets.reclaim_intervals[0])
    return share(rule, *first, rows)


@pytest.mark.parametrize("rule", tuple(RULES))
@pytest.mark.parametrize("units", [(0.5, 1.0, 2.0, 8.0), (0.1, 0.3, 0.7, 1.1)])
@given(seed=st.integers(0, 2**32 - 1), m=st.integers(1, 10))
@settings(max_examples=150, deadline=None)
def test_it_is_what_a_plain_statement_of_one_resource_gives(
    rule: RuleName, units: tuple[float, ...], seed: int, m: int
) -> None:
    rng = np.random.default_rng(seed)
    budgets, members, loans = random_case(rng, 1, m)
    loans.short_intervals[:] = loans.short_intervals[0]
    members.units[:, 0] = rng.choice(units, m)
    grants, _ = arbitrate(rule, budgets, members, loans)
    plain = stated(rule, budgets, members, loans)
    assert grants.granted.tolist() == plain.granted
    assert grants.due.tolist() == plain.due
    assert grants.promised.tolist() == plain.promised
    assert [Reason(code).name for code in grants.reason] == plain.reason
    assert grants.because.tolist() == plain.because
    assert grants.resource.tolist() == [NO_RESOURCE if reason == "ALL" else 0 for reason in plain.reason]
    np.testing.assert_array_equal(grants.borrowed, np.maximum(grants.granted - own(members), 0))


def own(members: Members) -> np.ndarray:
    return np.floor(members.guaranteed[:, 0] / members.units[:, 0] + 1e-9)
