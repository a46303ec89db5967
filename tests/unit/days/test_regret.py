"""Regret: what stands above perfect foresight, and what a policy closes of the distance to the causal plan."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_rl.evaluation.days.regret import closed_share, regret_markdown
from rlscaler_rl.evaluation.days.table import DayTable, PlayedLoad, Score

ROLES = {
    "rule": "policy",
    "hpa": "untuned",
    "keda": "untuned",
    "hpa_tuned": "tuned",
    "static": "tuned",
    "planner": "reference",
    "causal": "reference",
}


def table(**j: tuple[float, ...]) -> DayTable:
    """A table of loads of one day each, all of their own origin; j[name] has the J of each."""
    count = len(next(iter(j.values())))
    loads = [
        PlayedLoad(name=f"load{i}", group=f"load{i}", drawn=False, days=[0], requests=1.0, digest="")
        for i in range(count)
    ]
    scores = [
        Score(
            load=one.name,
            contender=name,
            label=name.upper(),
            role=ROLES[name],
            j=[value],
            cost=[1.0],
            late_percent=[0.0],
            gpu_hours=[1.0],
            cpu_hours=[1.0],
        )
        for name, values in j.items()
        for one, value in zip(loads, values, strict=True)
    ]
    return DayTable(
        kind="transfer", level="fluid", share=0.5, version="0", loads=loads, scores=scores, seconds=1.0, peak_mib=1
    )


def test_the_share_is_of_the_distance_from_the_rival_to_the_causal_plan():
    made = table(rule=(2.2, 4.4, 6.6, 8.8), hpa=(2.8, 5.6, 8.4, 11.2), causal=(2.0, 4.0, 6.0, 8.0))
    share = closed_share(made, "rule", "hpa")
    assert share is not None
    assert share.mean == pytest.approx(75.0)
    assert share.low == pytest.approx(75.0)
    assert share.high == pytest.approx(75.0)
    worse = closed_share(made, "hpa", "rule")
    assert worse is not None
    assert worse.mean == pytest.approx(-300.0)


def test_the_interval_is_over_origins_and_has_no_bounds_where_they_are_few_or_the_distance_may_be_none():
    varied = table(rule=(2.2, 2.3, 2.1, 2.2), hpa=(2.8, 2.6, 2.9, 2.7), causal=(2.0,) * 4)
    share = closed_share(varied, "rule", "hpa")
    assert share is not None
    assert share.low < share.mean < share.high
    few = closed_share(table(rule=(2.2, 2.3), hpa=(2.8, 2.6), causal=(2.0, 2.0)), "rule", "hpa")
    unclear = closed_share(table(rule=(2.2,) * 3, hpa=(3.5, 1.9, 1.9), causal=(2.0,) * 3), "rule", "hpa")
    for one in (few, unclear):
        assert one is not None
        assert np.isinf([one.low, one.high]).all()


def test_there_is_no_share_where_there_is_no_distance_or_no_causal_plan():
    assert closed_share(table(rule=(2.0,) * 3, hpa=(1.9,) * 3, causal=(2.0,) * 3), "rule", "hpa") is None
    assert closed_share(table(rule=(2.0,) * 3, hpa=(1.9,) * 3), "rule", "hpa") is None


def test_the_report_sorts_by_regret_and_names_the_best_untuned_autoscaler():
    made = table(rule=(1.5,) * 3, hpa=(2.0,) * 3, keda=(1.75,) * 3, planner=(1.0, 1.0, 1.0), causal=(1.25,) * 3)
    lines = list(regret_markdown(made))
    order = [line.split("|")[1].strip() for line in lines if line.startswith("|")][2:]
    assert order == ["CAUSAL", "RULE", "KEDA", "HPA"]
    assert "| RULE | +50.0 | +50.0 to +50.0 | +20.0 | +20.0 to +20.0 | load0 +50.0 |" in lines
    assert any("RULE closes 50 % of the distance from KEDA" in line for line in lines)


def test_what_is_closed_from_the_best_tuned_autoscaler_is_said_beside_that_from_the_best_untuned_one():
    made = table(rule=(1.5,) * 3, hpa=(2.25,) * 3, hpa_tuned=(1.75,) * 3, static=(3.0,) * 3, causal=(1.25,) * 3)
    untuned, tuned = list(regret_markdown(made))[-2:]
    assert untuned.startswith("RULE closes 75 % of the distance from HPA, the best untuned autoscaler, ")
    assert tuned.startswith("RULE closes 50 % of the distance from HPA_TUNED, the best of those tuned on the past, ")


def test_the_report_needs_only_one_of_the_two_plans():
    no_causal = list(regret_markdown(table(rule=(1.5,) * 3, hpa=(2.0,) * 3, planner=(1.0,) * 3)))
    assert not any("closes" in line for line in no_causal)
    no_plan = list(regret_markdown(table(rule=(1.5,) * 3, hpa=(1.2,) * 3, causal=(1.25,) * 3)))
    assert no_plan[-1] == "RULE: HPA, the best untuned autoscaler, is not above the causal plan."
