"""Search spaces and what is made of their points."""

from __future__ import annotations

import numpy as np
import optuna
import pytest

from rlscaler_core.decision.rule import Rule, RuleSettings
from rlscaler_core.decision.spec import SpecSettings
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hindsight import Hindsight
from rlscaler_rl.baselines.hpa import Hpa, KedaRequestRate
from rlscaler_rl.baselines.kpa import Kpa
from rlscaler_rl.baselines.simple import Static
from rlscaler_rl.evaluation.episodes import digest
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS
from rlscaler_rl.evaluation.tuning.score import scores, tune_part
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.scenario import ScenarioError

SHIPPED = {
    "hpa": lambda rate: Hpa(),
    "keda": lambda rate: KedaRequestRate(),
    "kpa": lambda rate: Kpa(),
    "rule": lambda rate: Rule(),
    "static": lambda rate: Static(),
    "ppo": lambda rate: load_bundled("ppo"),
    "hindsight": Hindsight,
}


@pytest.fixture(scope="module")
def scenarios():
    return tune_part("spike", None, 2)


@pytest.mark.parametrize("name", CONTENDERS)
def test_the_default_point_is_the_contender_as_it_ships(name, scenarios):
    found = scores(CONTENDERS[name], [CONTENDERS[name].default], scenarios, "fluid")[0]
    np.testing.assert_allclose(found, run(scenarios, SHIPPED[name](scenarios.rate)).result.j)


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_point_of_a_space_can_be_played(name, scenarios):
    tunable = CONTENDERS[name]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    points = [tunable.default, *(study.ask(tunable.space).params for _ in range(20))]
    j = scores(tunable, points, scenarios, "fluid")
    assert j.shape == (21, 2)
    assert np.isfinite(j).all()
    assert len(np.unique(j[:, 0].round(6))) > 5
    assert set(tunable.default) == set(tunable.space)


@pytest.mark.parametrize("name", ["rule", "ppo"])
def test_settings_of_several_intervals_come_back_in_the_order_that_they_were_asked_in(name, scenarios):
    tunable = CONTENDERS[name]
    points = [{**tunable.default, "interval": interval, "min_gpu": gpu} for gpu in (1, 3) for interval in (30, 10, 15)]
    together = scores(tunable, points, scenarios, "fluid")
    np.testing.assert_array_equal(together, [scores(tunable, [one], scenarios, "fluid")[0] for one in points])
    assert len(np.unique(together[:, 0])) == len(points)


def test_a_batch_has_one_interval(scenarios):
    spec = SpecSettings(interval_seconds=np.array([10.0, 15.0]))
    with pytest.raises(ScenarioError, match=r"interval_seconds: one for all .* \[10.0, 15.0\]"):
        run(scenarios, Rule(RuleSettings(spec=spec)))


def test_both_levels_judge_the_same_arrivals(scenarios):
    static = CONTENDERS["static"]
    fluid, request = (scores(static, [static.default], scenarios, level) for level in ("fluid", "request"))
    np.testing.assert_allclose(fluid, request, rtol=0.05)


def test_the_part_for_all_loads_is_made_of_what_policies_learn_from():
    everything = tune_part(None, None, 2)
    assert len(everything) == 8
    assert "azure_code" not in set(everything.pattern)


def test_the_held_out_workload_is_tuned_on_the_other_fold():
    parts = [tune_part("azure_code", fold, 2) for fold in (0, 1)]
    assert digest(parts[0]) != digest(parts[1])
