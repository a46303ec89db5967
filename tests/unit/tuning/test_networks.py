"""A contender that trains: its network is kept beside its settings and is the one that plays."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

from rlscaler_core.decision.rule import RuleSettings, rule_under
from rlscaler_core.decision.spec import SpecSettings
from rlscaler_core.decision.types import Placement
from rlscaler_rl.baselines.actors import Configured
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tuning import networks, spaces
from rlscaler_rl.evaluation.tuning.cache import load, with_network
from rlscaler_rl.evaluation.tuning.command import refresh
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, STANDING
from rlscaler_rl.evaluation.tuning.networks import Plan
from rlscaler_rl.evaluation.tuning.score import tune_part
from rlscaler_rl.evaluation.tuning.tune import SearchTask
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.scenario_buffer import MOST_DRAWN
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.training.export import NumpyActor
from rlscaler_rl.training.finetune import FineTuning
from rlscaler_rl.training.network import bundled_network
from rlscaler_rl.workloads.source import WorkloadSource

PPO = CONTENDERS["ppo"]
TINY = FineTuning(
    steps=512, envs=16, buffer_size=4, batch_size=32, epochs=1, critic_rollouts=1, candidates=1, learning_rate=0.02
)
SMALL = {"budget": 4, "finalists": 1, "episodes": 2, "training": TINY}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tuned") / "tuned.json"
    refresh(
        [SearchTask("ppo", "ramp", **SMALL), SearchTask("ppo", "azure_code", 0, **SMALL)], path, Console(quiet=True)
    )
    return path


@pytest.fixture(scope="module")
def artefact():
    return networks.train("ramp", Plan(2, PPO.default, STANDING), TINY)


def played(tunable, found):
    scenarios = tune_part("ramp", None, 2, seed=1)
    return run(scenarios, tunable.controller(found, scenarios.rate), level="request").result.j.mean()


def test_what_was_kept_is_what_was_judged(file):
    record = load(file).find(("ppo", "ramp", None))
    assert record.trials == 4
    assert played(with_network(PPO, record, file), record.found) == pytest.approx(record.j, abs=1e-4)


def test_the_network_that_a_record_names_is_the_one_that_plays(file, artefact):
    networks.save(artefact, "ramp", file)
    record = load(file).find(("ppo", "ramp", None)).model_copy(update={"network": artefact.manifest.digest})
    kept = with_network(PPO, record, file)
    assert played(kept, PPO.default) == pytest.approx(played(PPO.around(artefact.actor()), PPO.default))
    assert artefact.manifest.training.seed == 2
    assert artefact.manifest.digest != PPO.controller(PPO.default, []).manifest.digest


def test_a_network_on_a_rule_begins_as_that_rule():
    scenarios = tune_part("ramp", None, 2, seed=1)
    rule = CONTENDERS["rule"]
    found = {**rule.default, "loading": 0.9, "horizon": 1.1, "interval": 15, "min_cpu": 2, "placement": 2}
    network = bundled_network().on_rule(spaces.gains(found), found["placement"])
    actor = Configured(NumpyActor(list(network.layers), network.manifest), spaces.spec(found))
    begun = run(scenarios, actor).result
    np.testing.assert_array_equal(begun.j, run(scenarios, rule.controller(found, scenarios.rate)).result.j)
    assert not np.array_equal(begun.j, run(scenarios, rule.controller(rule.default, scenarios.rate)).result.j)


def test_what_is_trained_on_a_rule_says_so_and_plays_on_it():
    found = {**CONTENDERS["rule"].default, "loading": 0.9, "interval": 15}
    made = networks.train("ramp", Plan(1, found, on_rule=True), TINY)
    assert made.manifest.residual
    assert made.manifest.rule.loading == 0.9
    assert rule_under(made.actor()) == RuleSettings(loading=0.9, late_price=0.0, placement=Placement.BALANCED)
    assert made.manifest.training.hyperparameters["plan"]["on_rule"]


def test_training_is_under_the_spec_of_its_plan():
    spec = SpecSettings(15.0, (2, 3), False, 0.6, 30.0, 255.0)
    source = WorkloadSource("ramp", np.random.default_rng(1), spec=spec)
    env = SimulatorVecEnv(8, sources=[source.take], threads=1, rule=RuleSettings(loading=0.6))
    for _ in range(2):  # the shelf that training begins with, and one that is drawn later
        env.reset()
        params = env.groups[0].batch.params
        assert not params.reactive_floor.any()
        assert (params.target_utilization == 0.6).all()
        assert (params.min_replicas == (2, 3)).all()
        assert (params.stabilization_seconds == (30, 255)).all()
        assert params.has_behavior.all()
        assert (params.interval_seconds == 15).all()
        env.buffer.taken[:] = MOST_DRAWN


def test_actions_of_training_are_added_to_the_rule_that_is_asked_for():
    def replicas(loading):
        source = WorkloadSource("ramp", np.random.default_rng(1))
        env = SimulatorVecEnv(8, sources=[source.take], threads=1, rule=RuleSettings(loading=loading))
        env.reset()
        for _ in range(3):
            env.step(np.tile([2, 2, 1], (8, 1)))
        return env.groups[0].batch.cluster.pool["target"].sum()

    assert replicas(0.3) > replicas(1.2)


@pytest.mark.parametrize("with_rule", [False, True])
def test_every_trial_of_the_budget_is_played(tmp_path, with_rule):
    path = tmp_path / "tuned.json"
    rule = [SearchTask("rule", "ramp", budget=2, finalists=1, episodes=2)] if with_rule else []
    task = SearchTask("ppo", "ramp", **{**SMALL, "budget": 13})
    refresh([*rule, task], path, Console(quiet=True))
    assert load(path).find(task.key).trials == 13


def test_what_stands_on_a_rule_is_judged_as_that_rule_too(tmp_path):
    path = tmp_path / "tuned.json"
    rule, ppo = SearchTask("rule", "ramp", budget=12, finalists=2, episodes=2), SearchTask("ppo", "ramp", **SMALL)
    refresh([rule, ppo], path, Console(quiet=True))
    assert load(path).find(ppo.key).j <= load(path).find(rule.key).j


def test_a_workload_without_a_train_part_keeps_the_general_network(file):
    assert not networks.trainable("azure_code")
    assert load(file).find(("ppo", "azure_code", 0)).network is None
    assert not (networks.folder(file) / "azure_code.onnx").exists()


def test_a_network_of_other_settings_is_refused(file, artefact):
    networks.save(artefact, "ramp", file)
    record = load(file).find(("ppo", "ramp", None)).model_copy(update={"network": "0" * 64})
    with pytest.raises(EvaluationError, match="another network than the settings"):
        with_network(PPO, record, file)
    with pytest.raises(EvaluationError, match="rlscaler tune --contenders ppo"):
        with_network(PPO, record.model_copy(update={"workload": "spike"}), file)
