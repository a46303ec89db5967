"""GPU-hours at equal lateness. An hour stands for a day here."""

import numpy as np
import pytest

from rlscaler_core.decision.rule import Rule, RuleSettings
from rlscaler_core.decision.spec import SpecSettings
from rlscaler_rl.baselines.hpa import Hpa, HpaSettings
from rlscaler_rl.evaluation.days.compare import Request, compare
from rlscaler_rl.evaluation.days.lateness import HPA, KNOBS, LIMITS, STEERED, lateness_markdown
from rlscaler_rl.evaluation.days.play import after, played, prepared
from rlscaler_rl.evaluation.days.table import DayTable, Lateness
from tests.unit.days.test_days import load


def rule(objective: float) -> Rule:
    return Rule(RuleSettings(spec=SpecSettings(objective=objective)))


def test_what_is_left_of_the_budget_is_carried_from_one_day_to_the_next():
    days = prepared([(load("a"), 3), (load("b", 50.0), 3)])
    first = played(days, lambda rate: rule(0.9999))
    assert first.result.late_percent.min() > 0.001
    assert first.state.price_factor.min() > 1.0
    assert first.state.counted_requests == pytest.approx(first.result.requests, rel=0.05)
    next_day = prepared([(load("a"), 4), (load("b", 50.0), 4)])
    alone = played(next_day, lambda rate: rule(0.9999))
    second = played(after(next_day, first), lambda rate: rule(0.9999))
    assert (second.state.price_factor != alone.state.price_factor).all()
    assert (second.state.counted_requests > 1.8 * first.state.counted_requests).all()


def test_without_an_objective_nothing_is_counted_and_the_price_stays():
    state = played(prepared([(load("a"), 3)]), lambda rate: Rule()).state
    assert (state.counted_requests[0], state.price_factor[0]) == (0.0, 1.0)


def test_every_knob_plays_its_values_side_by_side_as_alone():
    days = prepared([(load("a"), 3), (load("b", 50.0), 3)])
    for knob in KNOBS:
        values = knob.values[-2:]
        both = played(days.tiled(2), lambda rate, knob=knob, values=values: knob.make(values, 2)).result
        alone = played(days, lambda rate, knob=knob, values=values: knob.make(values[1:], 2)).result
        np.testing.assert_array_equal(both.cost[2:], alone.cost)
        np.testing.assert_array_equal(both.late_percent[2:], alone.late_percent)


def test_the_targets_are_those_of_an_hpa_with_kubernetes_defaults():
    days = prepared([(load("a"), 3)])
    knob = next(knob for knob in KNOBS if knob.name == HPA)
    found = played(days, lambda rate: knob.make((0.6,), 1)).result
    assert found.cost[0] == played(days, lambda rate: Hpa(HpaSettings(target=(0.6, 0.6)))).result.cost[0]


@pytest.mark.long
def test_a_comparison_has_a_row_for_each_limit_and_contender_and_survives_its_file():
    found = compare(Request("transfer", [load("a"), load("b", 60.0)], days=1, lateness=True), lambda text: None)
    names = {knob.name for knob in KNOBS} | {STEERED}
    seen = {(row.load, row.limit, row.contender) for row in found.lateness}
    assert seen == {(name, limit, who) for name in "ab" for limit in LIMITS for who in names}
    assert DayTable.model_validate_json(found.model_dump_json()) == found
    assert len(found.lateness) == len(seen)


def row(contender: str, hours: float, late: float) -> Lateness:
    return Lateness(
        load="a", contender=contender, label=contender, limit=1.0, setting=0.8, gpu_hours=[hours], late_percent=[late]
    )


def test_a_limit_that_was_not_kept_is_marked_and_counts_for_no_mean():
    strict = [row(name, 30.0, 0.5).model_copy(update={"limit": 0.1}) for name in (STEERED, HPA)]
    text = "\n".join(lateness_markdown([row(STEERED, 18.0, 0.9), row(HPA, 20.0, 0.4), *strict]))
    assert "| a | 1 | 18.0 (0.90) | 20.0 (0.40) |" in text
    assert "| a | 0.1 | 30.0 (0.50) † | 30.0 (0.50) † |" in text
    assert "| 1 | -10.0 % (1) | - |" in text
    assert "| 0.1 | - | - |" in text
    assert "| 1 | 1 of 1 | 1 of 1 |" in text
