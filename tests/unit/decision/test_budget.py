"""What both pools may cost together: GPU replicas cost 2.5 and carry 20 requests/s, CPU replicas 0.625 and 4."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.guards import STAGES, without
from rlscaler_core.decision.observation import ObservationContract, observe
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Decision, Flag, State

CONTRACT = ObservationContract(stack_size=1)


def within(budget: float) -> State:
    """The state of a policy whose running replicas were within this budget."""
    state = initial_state(1, 1)
    state.budget_kept[:] = budget
    return state


def decided(
    budget: float,
    action: tuple[int, int] = (0, 0),
    base: tuple[int, int] = (2, 4),
    rate: float = 1.0,
    *,
    state: State | None = None,
    known: bool = True,
    tick: bool = False,
    **params: object,
) -> tuple[Decision, State]:
    given = {"requests_per_second": (20, 4), "max_replicas": 40, "step_size": 1, "target_utilization": 1.0} | params
    table = make_params(1, budget_per_hour=budget, **given)
    measured = {"arrival_rate": rate, "gpu_utilization": 50.0, "cpu_utilization": 50.0, "p95_ms": 100.0}
    samples = make_samples(1, spec_replicas=base, ready_replicas=base, **(measured if known else {}))
    state = within(budget) if state is None else state
    observation, seen = observe(table, state, samples, CONTRACT)
    if tick:
        decision, _, state = decide(table, state, samples, kind="floor")
    else:
        decision, _, state = decide(table, seen, samples, Proposal(observation, np.array([(*action, 1)], np.int32)))
    return decision, state


def desired(*arguments: object, **options: object) -> tuple[int, int]:
    decision, _ = decided(*arguments, **options)  # type: ignore[arg-type]
    return tuple(decision.desired[0].tolist())


def test_without_a_budget_nothing_is_limited() -> None:
    assert desired(np.inf, (2, 2), (20, 20)) == (22, 22)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [(20.0, (4, 6)), (13.75, (4, 6)), (13.0, (4, 4)), (12.6, (4, 4)), (10.0, (3, 4)), (7.5, (2, 4))],
)
def test_increases_over_the_budget_are_refused_least_capacity_per_cost_first(
    budget: float, expected: tuple[int, int]
) -> None:
    decision, _ = decided(budget, (2, 2))
    assert tuple(decision.desired[0].tolist()) == expected
    assert bool(decision.flags[0] & Flag.BUDGET_LIMITED) == (expected != (4, 6))
    assert decision.trail[0, STAGES.index("floor")].tolist() == [4, 6]
    assert tuple(decision.trail[0, STAGES.index("budget")].tolist()) == expected


def test_a_budget_that_is_met_exactly_limits_nothing() -> None:
    assert desired(0.625 * 16, (0, 2), (0, 14), min_replicas=(0, 1)) == (0, 16)


def test_the_reactive_floor_does_not_exceed_the_budget() -> None:
    assert desired(10.0, rate=400.0, tick=True) == (3, 4)


def test_the_users_own_scaling_above_the_budget_stays_and_does_not_grow() -> None:
    """A foreign write that was adopted: nobody lowered the budget."""
    assert desired(5.0, (2, 2), (4, 8)) == (4, 8)
    assert desired(5.0, (-1, 2), (4, 8)) == (3, 8), "the actor may lower it"


def test_a_lowered_budget_lowers_running_replicas_until_they_fit_once() -> None:
    decision, state = decided(7.5, base=(4, 8), state=within(20.0))
    assert decision.desired[0].tolist() == [2, 4]
    assert state.budget_kept[0] == 20.0, "not there yet: the write may fail"
    decision, state = decided(7.5, base=(2, 4), state=state)
    assert (decision.desired[0].tolist(), state.budget_kept[0]) == ([2, 4], 7.5)
    decision, _ = decided(7.5, base=(4, 8), state=state)
    assert decision.desired[0].tolist() == [4, 8], "somebody else raised them since"


def test_a_budget_on_a_policy_that_is_new_counts_as_lowered() -> None:
    assert desired(7.5, base=(4, 8), state=initial_state(1, 1)) == (2, 4)


def test_a_lowered_budget_counts_on_unknown_data_too() -> None:
    """It is the user's own edit."""
    assert desired(7.5, base=(4, 8), state=within(20.0), known=False) == (2, 4)
    assert desired(7.5, base=(4, 8), known=False) == (4, 8)


def test_min_beats_the_budget() -> None:
    assert desired(1.0, base=(3, 3), state=within(20.0), min_replicas=(2, 1)) == (2, 1)
    assert desired(1.0, base=(0, 0), min_replicas=(2, 1)) == (2, 1)


def test_what_the_coarser_pool_leaves_over_goes_to_the_other() -> None:
    """All CPU growth is refused first; the GPU replica that has to go as well frees more than it needed."""
    assert desired(10.5, (2, 2), (2, 4), state=within(10.5)) == (3, 4)
    assert desired(11.3, (2, 2), (2, 4), state=within(11.3)) == (3, 6)


def test_an_exchange_that_does_not_fit_is_not_made_by_half() -> None:
    """Four GPU replicas serve 80; two and the CPU replicas that the budget leaves would serve less."""
    table = {"step_size": (2, 12), "min_replicas": (0, 0)}
    assert desired(12.5, (-1, 1), (4, 0), **table) == (2, 12), "it fits: 88 requests/s"
    assert desired(10.0, (-1, 1), (4, 0), **table) == (4, 0), "72 would be served, and 80 are"


def test_a_pool_without_known_capacity_gets_no_exchange_either() -> None:
    unknown = {"requests_per_second": (20, np.nan)}
    assert desired(10.0, (0, 2), (4, 0), min_replicas=0, **unknown) == (4, 0)


def test_one_pool() -> None:
    assert desired(6.0, (2, 0), (2, 0), present=[[True, False]]) == (2, 0)
    assert desired(8.0, (2, 0), (2, 0), present=[[True, False]]) == (3, 0)


def test_rows_do_not_touch() -> None:
    budgets = np.array([np.inf, 10.0, 7.5, 20.0])
    table = make_params(4, budget_per_hour=budgets, requests_per_second=(20, 4), max_replicas=40, step_size=1)
    samples = make_samples(4, arrival_rate=400.0, spec_replicas=(2, 4), ready_replicas=(2, 4))
    state = initial_state(4, 1)
    state.budget_kept[:] = budgets
    together, _, _ = decide(table, state, samples, kind="floor")
    for row in range(4):
        rows = slice(row, row + 1)
        alone, _, _ = decide(table.take(rows), state.take(rows), samples.take(rows), kind="floor")
        assert (alone.desired == together.desired[rows]).all()


def test_a_guard_can_be_left_out_to_show_what_it_did() -> None:
    table = make_params(1, budget_per_hour=7.5, requests_per_second=(20, 4), max_replicas=40)
    samples = make_samples(1, arrival_rate=400.0, spec_replicas=(2, 4), ready_replicas=(2, 4))
    decision, _, _ = decide(table, within(7.5), samples, guards=without("budget"), kind="floor")
    assert decision.desired[0].sum() > 6
    decision, _, _ = decide(table, within(7.5), samples, guards=without("floor"), kind="floor")
    assert decision.desired[0].tolist() == [2, 4]
