"""The planner and the lower bound: checked by trying every plan of small problems, and against all that was played."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.decision.rule import Rule
from rlscaler_loadgen import patterns as loads
from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.planning.planner import best_plan, certain_cost
from rlscaler_rl.planning.stages import Stages, cheapest_plan, least_cost_with_slack
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.scenario import Scenarios, from_rate


@st.composite
def problems(draw) -> Stages:
    """Problems so small that every plan can be tried."""
    stages, gpus, cpus = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    late = np.sort(rng.uniform(0, 9, (3, gpus * cpus)), axis=1)[:, ::-1].reshape(3, gpus, cpus)
    return Stages(
        gpu=np.arange(gpus),
        cpu=np.arange(cpus) * 2,
        level=rng.integers(0, 3, stages),
        late=late.astype(np.float32),
        holding=np.arange(gpus)[:, None] * 5.0 + np.arange(cpus)[None, :] * 1.25,
        late_price=float(rng.choice([0.1, 1.0, 7.0])),
        ordering=(float(rng.choice([0.0, 3.0, 40.0])), float(rng.choice([0.0, 2.0]))),
        start=(int(rng.integers(gpus)), int(rng.integers(cpus))),
        earliest=(int(rng.integers(3)), int(rng.integers(3))),
    )


def cost_of(stages: Stages, plan: np.ndarray) -> float:
    """The cost of one plan (K, 2), added up stage by stage."""
    total, (gpu, cpu) = 0.0, stages.start
    for k, (g, c) in enumerate(plan):
        if (k < stages.earliest[0] and g > stages.start[0]) or (k < stages.earliest[1] and c > stages.start[1]):
            return np.inf
        total += max(stages.gpu[g] - stages.gpu[gpu], 0) * stages.ordering[0]
        total += max(stages.cpu[c] - stages.cpu[cpu], 0) * stages.ordering[1]
        total += stages.holding[g, c] + stages.late_price * float(stages.late[stages.level[k], g, c])
        gpu, cpu = g, c
    return total


@given(problems())
@settings(max_examples=150)
def test_the_plan_costs_what_the_best_of_all_plans_costs(stages: Stages):
    total, plan = cheapest_plan(stages)
    states = list(product(range(len(stages.gpu)), range(len(stages.cpu))))
    tried = min(cost_of(stages, np.array(one)) for one in product(states, repeat=len(stages.level)))
    assert total == pytest.approx(tried, rel=1e-5)
    assert cost_of(stages, plan) == pytest.approx(tried, rel=1e-5)


@given(problems(), st.floats(0, 3))
@settings(max_examples=100)
def test_the_bound_with_slack_is_the_least_of_all_plans(stages: Stages, slack: float):
    rng = np.random.default_rng(int(slack * 1000))
    arrived, seconds = rng.uniform(0, 40, len(stages.level)), 5.0
    capacity = stages.gpu[:, None] * 2.0 + stages.cpu[None, :] * 1.0
    prices = np.array([stages.late_price, stages.ordering[0], stages.ordering[1] * 2])
    bound = least_cost_with_slack(arrived, capacity, stages.holding, seconds, slack, prices, np.array(stages.start))
    states = list(product(range(len(stages.gpu)), range(len(stages.cpu))))
    least = np.inf
    for plan in product(states, repeat=len(arrived)):
        cost, here = 0.0, stages.start
        for k, state in enumerate(plan):
            cost += max(state[0] - here[0], 0) * prices[1] + max(state[1] - here[1], 0) * prices[2]
            after = [capacity[plan[k + 1]]] if k + 1 < len(plan) else list(capacity.ravel())
            left = max(arrived[k] - capacity[state] * seconds, 0.0)
            last = k + 1 == len(plan)
            steps = (
                [0.0]
                if not last
                else [max(i - state[0], 0) * prices[1] + max(j - state[1], 0) * prices[2] for i, j in states]
            )
            cost += stages.holding[state]
            cost += min(
                step + prices[0] * max(left - room * slack, 0.0) for step, room in zip(steps, after, strict=True)
            )
            here = state
        least = min(least, cost)
    assert bound == pytest.approx(least, rel=1e-6)


def scenarios(pattern: str, **overrides) -> Scenarios:
    rate = np.stack([loads.rate(pattern, 600, seed, low=10, high=100) for seed in range(2)])
    return from_rate(rate, [0, 1], **{"initial": (1, 1), **overrides})


@pytest.mark.parametrize("pattern", ["ramp", "spike", "periodic", "random"])
def test_no_contender_comes_below_the_bound_and_foresight_by_a_rule_is_dearer_than_the_plan(pattern: str):
    played = scenarios(pattern)
    _, plan = best_plan(played)
    bound = certain_cost(played)
    rivals = [run(played, one).result.j for one in (Hpa(), Rule(), Hindsight(played.rate.astype(np.float64)))]
    assert (bound <= plan.result.j).all()
    assert all((bound <= j).all() for j in rivals)
    assert all((plan.result.j <= j).all() for j in rivals)


def test_one_pool_alone_is_planned_and_bounded():
    played = scenarios("spike", present=(True, False), initial=(2, 0), min_replicas=(1, 0), max_replicas=(10, 0))
    _, plan = best_plan(played)
    assert (plan.ledger.billed[:, 1] == 0).all()
    assert (certain_cost(played) <= plan.result.j).all()
    assert (plan.result.j <= run(played, Rule()).result.j).all()


def test_a_load_that_stays_is_planned_with_constant_replicas():
    played = from_rate(np.full((1, 600), 15.0), [1], initial=(1, 1))
    planner, plan = best_plan(played)
    assert len(np.unique(planner.targets[0, 30:-30], axis=0)) == 1
    assert plan.result.late_percent[0] < 1.0


def test_an_objective_longer_than_a_stage_leaves_the_bound_of_the_replicas():
    played = scenarios("spike", slo_ms=30_000.0, timeout=90.0)
    assert (certain_cost(played) >= played.min_replicas @ np.array([1.0, 0.25]) - 1e-9).all()
