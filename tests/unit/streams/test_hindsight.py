"""The planner of consumers who knows every message: against all plans there are, and against the rule."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from rlscaler_core.models import load_bundled
from rlscaler_rl.evaluation.streams.hindsight import (
    CAUTIONS,
    DRAIN_STEPS,
    Caution,
    Model,
    hindsight,
    model_of,
    plan_of,
    step,
)
from rlscaler_rl.simulation.streams.episode import least_consumer_seconds, run
from rlscaler_rl.simulation.streams.groups import Groups, groups
from rlscaler_rl.simulation.streams.ledger import j_of

SECONDS = 5.0


def tiny(
    arrivals: list[float],
    *,
    delay: int = 1,
    objective: int = 1,
    late: float = 0.02,
    left: float = 0.01,
    first: int = 0,
) -> Model:
    """Consumers of 10 messages a step; a change costs 2 messages of its step."""
    counts = np.array([1, 2, 4], np.int32)
    written = np.concatenate([[0.0], np.cumsum(arrivals), np.full(DRAIN_STEPS, np.sum(arrivals))])
    overdue = np.concatenate([np.zeros(objective), written[: len(written) - objective]])
    capacity = np.tile(10.0 * counts, (3, 1)) - np.where(np.eye(3) > 0, 0.0, 2.0)
    return Model(counts, first, capacity, delay, written, overdue, 0.1 * counts, late, left, 400.0)


def price_of(model: Model, plan: tuple[int, ...]) -> float:
    """J of numbers asked for at each step, or infinity where a plan orders while others are on their way."""
    paid, waiting, now, pending = 0.0, np.array(0.0), model.first, -1
    since = 0
    for number, asked in enumerate(plan):
        paid += model.price[asked]
        room = model.capacity[now, now]
        if pending >= 0:
            if asked != pending:
                return np.inf
            since += 1
            if since == model.delay:
                room, now, pending = model.capacity[now, asked], asked, -1
        elif asked > now:
            pending, since = asked, 0
        elif asked < now:
            room, now = model.capacity[now, asked], asked
        passed = step(model, number, waiting, room)
        waiting, paid = passed.waiting, paid + model.late_price * float(passed.late)
    if pending >= 0:
        return np.inf
    paid += model.left_price * float(waiting)
    for number in range(model.steps, model.steps + DRAIN_STEPS):
        passed = step(model, number, waiting, model.capacity[now, now])
        waiting, paid = passed.waiting, paid + model.late_price * float(passed.late)
    return paid + model.late_price * float(waiting)


CASES = {
    "a jump": tiny([5, 5, 5, 35, 35, 35, 5, 5]),
    "a jump at once": tiny([35, 35, 35, 35, 5, 5, 5]),
    "a peak that may wait": tiny([5, 5, 22, 5, 5, 5, 5], objective=3),
    "late is cheap": tiny([5, 25, 25, 25, 5, 5, 5], late=0.001),
    "begins too large": tiny([8, 8, 8, 8, 15, 15, 8], first=2),
    "late before help comes": tiny([25, 10, 10, 20, 5, 25, 10], delay=2),
    "what is left is dear": tiny([5, 5, 5, 25, 25, 25], objective=6, left=0.05),
    "long starts": tiny([5, 5, 5, 5, 38, 38, 5, 5], delay=3),
}


@pytest.mark.parametrize("name", CASES)
def test_no_plan_is_cheaper_than_the_planners(name: str) -> None:
    model = CASES[name]
    index = {count: place for place, count in enumerate(model.counts.tolist())}
    found = price_of(model, tuple(index[count] for count in plan_of(model).tolist()))
    least = min(price_of(model, plan) for plan in product(range(len(model.counts)), repeat=model.steps))
    assert least <= found <= 1.01 * least


def test_the_planner_orders_before_the_jump_and_holds_no_more_than_it_needs() -> None:
    model = CASES["long starts"]
    assert plan_of(model)[1] == 4, "what reads at the step of the jump is ordered three steps ahead"
    assert plan_of(tiny([5.0] * 8)).max() == 1


def test_late_are_messages_that_waited_longer_than_the_objective() -> None:
    model = tiny([30.0, 0.0, 0.0, 0.0], objective=2)
    waiting, late = np.array(0.0), []
    for number in range(4):
        passed = step(model, number, waiting, 10.0)
        waiting, late = passed.waiting, [*late, float(passed.late)]
    assert float(waiting) == 0
    # Of 30 that come over a step, the k-th is processed at k / 10 and came at k / 30: it waited k / 15 steps.
    assert late == pytest.approx([0, 0, 0, 0])
    model = tiny([30.0, 0.0, 0.0, 0.0], objective=1)
    waiting, sum_late = np.array(0.0), 0.0
    for number in range(4):
        passed = step(model, number, waiting, 10.0)
        waiting, sum_late = passed.waiting, sum_late + float(passed.late)
    assert sum_late == pytest.approx(15), "those from the fifteenth on"


def jump(protocol: str, **changes: float) -> Groups:
    rates = np.full((2, 240), 40.0)
    rates[:, 100:180] = 360.0
    return groups(rates, [1, 2], partitions=6, max_replicas=6, protocol=protocol, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky", "consumer"])
def test_in_the_level_who_knows_the_jump_is_ahead_of_the_rule(protocol: str) -> None:
    made = jump(protocol)
    rule, known = run(made, load_bundled("rule"), interval_seconds=15.0).result, hindsight(made)
    assert (known.j < rule.j).all()
    assert (known.late_percent <= rule.late_percent).all()
    assert (known.consumer_seconds + known.left / made.rate >= least_consumer_seconds(made)).all()


@pytest.mark.slow
def test_of_all_plans_the_best_counts() -> None:
    made = jump("range")
    alone = []
    for caution in CAUTIONS:
        asked = plan_of(model_of(made, 0, caution))
        assert len(asked) * SECONDS == made.seconds
        alone.append(tuple(asked.tolist()))
    assert len(set(alone)) > 1
    assert hindsight(made).j[0] == pytest.approx(hindsight(made.take([0])).j[0])


def test_cautious_plans_take_more_consumers() -> None:
    made = jump("cooperative-sticky")
    bold, careful = (plan_of(model_of(made, 0, Caution(1.0, share, 1.0))) for share in (1.0, 0.7))
    assert careful.sum() > bold.sum()


def test_what_is_left_is_paid_for() -> None:
    made = jump("range")
    nothing, some = (j_of(made, np.full(2, 480.0), np.full(2, left), np.zeros(2)) for left in (0.0, 2400.0))
    assert nothing == pytest.approx(12.5 / 6 * 2)
    assert some == pytest.approx(nothing + 12.5 / 6 * 24 / 240)
    assert j_of(made, np.full(2, 480.0), np.zeros(2), np.full(2, 4.0)) == pytest.approx(nothing + 2)
