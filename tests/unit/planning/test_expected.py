"""The cheapest step under many futures: checked by giving every order of small problems, pod by pod."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_rl.planning.expected import Decision, cheapest_step, horizon_stages


@st.composite
def decisions(draw) -> Decision:
    """Problems so small that every order can be tried; more replicas never make more requests late."""
    slow, quick, futures = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    lead = draw(st.sampled_from([(1, 0), (1, 1), (2, 0), (2, 1)]))
    period = draw(st.integers(1, 2))
    stages = horizon_stages(lead, period)
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    fewer = rng.exponential(2.0, (futures, stages, slow, quick)) * rng.integers(0, 2, (futures, stages, 1, 1))
    late = fewer[:, :, ::-1, ::-1].cumsum(axis=2).cumsum(axis=3)[:, :, ::-1, ::-1]
    ready = (int(rng.integers(slow)), int(rng.integers(quick)))
    starting = np.zeros((2, stages), np.int64)
    for pool, most in enumerate((slow, quick)):
        for stage in range(1, lead[pool] + 1):
            room = most - 1 - ready[pool] - starting[pool].sum()
            starting[pool, stage] = rng.integers(0, room + 1)
    return Decision(
        late=late.astype(np.float32),
        late_price=float(rng.choice([0.1, 1.0, 4.0])),
        unit=(4.0, 1.0),
        fewest=(int(rng.integers(2)), 1),
        ready=ready,
        starting=starting,
        lead=lead,
        period=period,
    )


def played(decision: Decision, pool: int, targets: tuple[int, ...], stages: int) -> tuple[list[int], float]:
    """The ready pods of every stage, and what all that exist cost, if every decision asks for a target.

    As a ReplicaSet does it: the newest pod that is not ready goes first, then ready ones.
    """
    ready = decision.ready[pool]
    starting = [stage for stage in range(stages) for _ in range(decision.starting[pool, stage])]
    seen, cost = [], 0.0
    for stage in range(stages):
        ready += sum(due <= stage for due in starting)
        starting = [due for due in starting if due > stage]
        if stage % decision.period == 0:
            target = targets[stage // decision.period]
            while ready + len(starting) < target:
                starting.append(stage + decision.lead[pool])
            while starting and ready + len(starting) > target:
                starting.pop()
            ready = min(ready, target)
            ready += sum(due <= stage for due in starting)
            starting = [due for due in starting if due > stage]
        seen.append(ready)
        cost += decision.unit[pool] * (decision.fewest[pool] + ready + len(starting))
    return seen, cost


def tried(decision: Decision) -> dict[tuple[int, int], float]:
    """The least expected cost of all orders, by what they ask for first."""
    futures, stages, slow, quick = decision.late.shape
    committed = decision.committed
    least: dict[tuple[int, int], float] = {}
    paths = [
        [(targets[0], *played(decision, pool, targets, span)) for targets in product(range(most), repeat=times)]
        for pool, most, span, times in (
            (0, slow, stages, -(-stages // decision.period)),
            (1, quick, committed, -(-committed // decision.period)),
        )
    ]
    for first, slow_path, slow_cost in paths[0]:
        later = 0.0
        for future, stage in product(range(futures), range(committed, stages)):
            begin = stage // committed * committed
            stretch = decision.late[future, begin : begin + committed, slow_path[stage]].astype(float)
            price = decision.unit[1] * (decision.fewest[1] + np.arange(quick))
            chosen = int(np.argmin(decision.late_price * stretch.sum(axis=0) + committed * price))
            later += decision.late_price * stretch[stage - begin, chosen] + price[chosen]
        for second, quick_path, quick_cost in paths[1]:
            states = (range(committed), slow_path[:committed], quick_path)
            soon = decision.late_price * decision.late[:, *states].sum()
            total = slow_cost + quick_cost + (float(soon) + later) / futures
            least[first, second] = min(least.get((first, second), np.inf), total)
    return least


@given(decisions())
@settings(max_examples=60, deadline=None)
def test_the_step_begins_the_cheapest_of_all_ways_to_order(decision: Decision):
    total, asked = cheapest_step(decision)
    least = tried(decision)
    assert total == pytest.approx(min(least.values()), rel=1e-4)
    assert least[int(asked[0]), int(asked[1])] == pytest.approx(total, rel=1e-4)


@given(decisions())
@settings(max_examples=60, deadline=None)
def test_knowing_which_future_comes_is_never_dearer(decision: Decision):
    total, _ = cheapest_step(decision)
    known = [cheapest_step(replace(decision, late=decision.late[[one]]))[0] for one in range(len(decision.late))]
    assert np.mean(known) <= total + 1e-3


def test_the_horizon_is_two_leads_and_a_period_in_whole_stretches():
    assert horizon_stages((9, 2), 6) == 24
    assert horizon_stages((2, 2), 6) == 16
