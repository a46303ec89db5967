"""Settings as rows: a batch of many settings plays what each would play alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.decision.rule import Rule as ForecastRule
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_core.decision.spec import SpecSettings
from rlscaler_rl.baselines.behavior import DISABLED, MIN, HpaPolicy, HpaRules
from rlscaler_rl.baselines.contender import pools, stacked
from rlscaler_rl.baselines.hindsight import Hindsight, HindsightSettings
from rlscaler_rl.baselines.hpa import Hpa, HpaSettings, KedaRequestRate
from rlscaler_rl.baselines.kpa import CONCURRENCY, RPS, Kpa, KpaSettings
from rlscaler_rl.baselines.simple import Static, StaticSettings
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.scenario import nominal

SLOW = HpaRules(60.0, (HpaPolicy("Pods", 2, 45.0), HpaPolicy("Percent", 30, 60.0)), MIN)
FAST = HpaRules(0.0, (HpaPolicy("Pods", 4, 15.0), HpaPolicy("Percent", 100, 15.0)), 0)
HPAS = [
    HpaSettings(target=(0.8, 0.8), min_replicas=(1, 1), scaled=(True, True), up=FAST, down=SLOW),
    HpaSettings((0.5, 0.7), 0.02, (2, 3), (False, True), up=SLOW, down=replace(FAST, select=DISABLED), placement=0),
    HpaSettings((0.9, 0.4), 0.2, (1, 1), (True, True), up=replace(SLOW, stabilization_seconds=15.0), down=FAST),
]
KPAS = [
    KpaSettings(target=(0.7, 0.7), min_scale=(1, 1)),
    KpaSettings(CONCURRENCY, (0.4, 0.6), 30.0, 40.0, 150.0, 3.0, 1.2, 90.0, (2, 1), 2),
    KpaSettings(RPS, (1.0, 0.9), 12.0, 100.0, 400.0, 2.0, 4.0, 15.0, (1, 4), 0),
]
RULES = [
    RuleSettings(1.0, 2.0, 1.4, 2.0, 1.05, 180.0, 1, SpecSettings(30.0, (1, 1), True, 0.8, 0.0, 0.0)),
    RuleSettings(0.9, 0.5, 0.0, 4.0, 0.5, 20.0, 0, SpecSettings(30.0, (3, 2), False, 0.6, 15.0, 120.0)),
    RuleSettings(1.3, 3.0, 2.0, 0.0, 1.3, 60.0, 2, SpecSettings(30.0, (1, 4), True, 0.9, 0.0, 300.0)),
]
HINDSIGHTS = [HindsightSettings(), HindsightSettings(1.1, 1.0, 21.0, 0), HindsightSettings(0.6, 2.0, 5.0, 2)]
STATICS = [StaticSettings((0.0, 1.0)), StaticSettings((0.5, 0.2), 0), StaticSettings((1.0, 0.0), 2)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (lambda chosen, rate: Hpa(chosen), HPAS),
        (lambda chosen, rate: KedaRequestRate(chosen), HPAS),
        (lambda chosen, rate: Kpa(chosen), KPAS),
        (lambda chosen, rate: ForecastRule(chosen), RULES),
        (lambda chosen, rate: Static(chosen), STATICS),
        (lambda chosen, rate: Hindsight(rate, chosen), HINDSIGHTS),
    ],
    ids=["hpa", "keda", "kpa", "rule", "static", "hindsight"],
)
def test_settings_played_side_by_side_score_as_each_alone(make, settings):
    scenarios = nominal(["spike", "random"], [3, 4], 300, initial_replicas=(2, 2))
    alone = [run(scenarios, make(one, scenarios.rate)).result.j for one in settings]
    rows = scenarios.take(np.tile(np.arange(2), len(settings)))
    together = run(rows, make(stacked(settings, 2), rows.rate)).result.j
    np.testing.assert_allclose(together.reshape(len(settings), 2), alone, rtol=1e-6)
    assert len(np.unique(np.round(together, 6))) > len(settings), "the settings make a difference"


def test_settings_that_name_something_must_agree():
    with pytest.raises(ValueError, match="must be the same"):
        stacked([HpaPolicy("Pods", 1, 15.0), HpaPolicy("Percent", 1, 15.0)])


def test_a_pair_is_for_both_pools_of_every_row():
    assert pools((1, 2), 3).tolist() == [[1, 2]] * 3
    assert pools(5, 2).tolist() == [[5, 5]] * 2
    with pytest.raises(ValueError, match="shape"):
        pools(np.array([1.0, 2.0, 3.0]), 3)
