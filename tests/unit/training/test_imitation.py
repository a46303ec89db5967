"""The teacher's advice is that of the episode's own plan, told as steps from what the action is added to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.decision.action import REACH
from rlscaler_core.decision.rule import DEFAULT_SETTINGS, rule_replicas
from rlscaler_rl.planning.planner import Planner
from rlscaler_rl.simulation.generative import draw
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import RANGES
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.training.export import bare_manifest
from rlscaler_rl.training.imitation import PlannedEnv, PlannedEpisodes, begin_with_no_change, imitate
from rlscaler_rl.training.train import make_env, make_model

N = 6
RNG = np.random.default_rng(0)
TINY = replace(RANGES, durations=(120,), max_replicas=(2, 4), wholly_nominal_share=0.0, nominal_share=0.0)


@pytest.fixture(scope="module")
def episodes():
    return PlannedEpisodes(randomised(N, RNG, 30.0, 120, TINY, draw), RNG, first=2)


def env_of(episodes, rule=DEFAULT_SETTINGS):
    before = Planner(np.zeros((2, 24, 2), int), np.zeros((2, 24), int))
    env = SimulatorVecEnv(N, 1, rule=rule, sources=[episodes.take])
    return PlannedEnv(env, [before, episodes.plan])


def test_every_episode_knows_the_number_of_its_plan(episodes):
    assert episodes.scenarios.seed.tolist() == list(range(2, 2 + N))
    assert episodes.plan.targets.shape == (N, 24, 2)


@pytest.mark.parametrize("rule", [None, DEFAULT_SETTINGS], ids=["on present replicas", "on the rule"])
def test_the_advice_leads_to_the_most_that_the_plan_wants_in_the_interval(episodes, rule):
    planned = env_of(episodes, rule)
    planned.env.reset()
    advice = planned.advice()
    for group in planned.env.groups:
        batch = group.batch
        base = batch.cluster.pool["target"]
        if rule is not None:
            base = rule_replicas(batch.params, batch.state, group.samples, rule)
        for row, number in enumerate(batch.scenarios.seed - 2):
            wanted = episodes.plan.targets[number, :6].max(axis=0)
            steps = np.clip(wanted - base[row], -REACH, REACH) * batch.params.present[row]
            given = advice[planned.env.rows_of(planned.env.groups.index(group))][row]
            assert (given[:2] - REACH).tolist() == steps.tolist()


def test_what_is_imitated_is_learned(episodes, small):
    model = make_model(small, make_env(small), None)
    planned = PlannedEnv(
        SimulatorVecEnv(
            N,
            1,
            contract=bare_manifest(small).contract,
            rule=DEFAULT_SETTINGS,
            sources=[episodes.take],
            asymmetric=True,
        ),
        [Planner(np.zeros((2, 24, 2), int), np.zeros((2, 24), int)), episodes.plan],
    )
    losses = imitate(model, planned, rounds=3, seed=0)
    assert losses[-1] < losses[0]


def test_an_actor_on_the_rule_begins_with_no_change(small):
    model = make_model(small, make_env(small), None)
    begin_with_no_change(model.policy)
    observations = np.random.default_rng(0).normal(size=(400, model.observation_space.shape[0])).astype(np.float32)
    actions = model.predict(observations, deterministic=True)[0]
    assert (actions == [2, 2, 1]).all()
