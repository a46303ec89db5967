"""Episodes of services whose forecaster has seen the hours before them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.decision.forecaster.memory import calendar_of, nothing_learned, recent_of
from rlscaler_core.decision.manifest import LearnedPrices, Manifest
from rlscaler_core.decision.rule import Rule, rule_of
from rlscaler_rl.baselines.actors import FrozenActor
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import RANGES
from rlscaler_rl.simulation.remembered import HOUR, Pool, learned
from rlscaler_rl.simulation.scenario import PAST_SECONDS
from rlscaler_rl.simulation.sensing import SENSE_SECONDS
from rlscaler_rl.simulation.vec_env import NO_CHANGE, SimulatorVecEnv

N, HOURS, EPISODE = 12, 1.0, 900
ON_THE_RULE = Manifest(
    name="still",
    stack_size=1,
    residual=True,
    learned=LearnedPrices(late_price=0.5, caution=0.2, jump_caution=0.15),
)


@pytest.fixture(scope="module")
def days():
    """Every second service has a past that is known: in a row of its own, so that tests can name them."""
    made = randomised(N, np.random.default_rng(3), 30.0, int(HOURS * HOUR) + PAST_SECONDS + EPISODE)
    past = np.nan_to_num(made.past, nan=1.0)
    past[1::2] = np.nan
    return replace(made, past=past)


@pytest.fixture(scope="module")
def pool(days):
    return Pool.of(days, HOURS, EPISODE, 2, np.random.default_rng(4))


def test_what_a_forecaster_was_shown_is_what_it_sees_in_the_simulation(days):
    known = np.arange(0, N, 2)
    here = days.take(known)
    begin = np.tile(np.array([600, 1800]), (len(known), 1))
    recent, calendar = learned(here, begin)
    episode = replace(
        here,
        rate=here.rate[:, 600:],
        arrivals=here.arrivals[:, 600:],
        past=here.arrivals[:, 600 - PAST_SECONDS : 600],
        duration=here.duration - 600,
        epoch=here.epoch + 600,
        load_recent=recent[:, 0],
        load_calendar=calendar[:, 0],
    )
    batch = Batch(episode)
    for _ in range(1200 // SENSE_SECONDS):
        batch.sense()
        batch.advance()
    for expected, found in ((recent, batch.state.load_recent), (calendar, batch.state.load_calendar)):
        np.testing.assert_array_equal(found, expected[:, 1])
        assert (found != expected[:, 0]).any(axis=1).all(), "something was learned meanwhile"


@pytest.mark.slow
def test_an_episode_begins_with_what_was_learned_before_it_and_with_the_load_of_that_moment(pool, days):
    rows = np.array([0, 2, 4, 1])
    taken = pool.take(rows, EPISODE, np.random.default_rng(5))
    begin = (taken.epoch - pool.services.epoch[rows]).astype(int)
    for i, row in enumerate(rows):
        np.testing.assert_array_equal(taken.rate[i], days.rate[row, begin[i] : begin[i] + EPISODE])
        np.testing.assert_array_equal(taken.arrivals[i], days.arrivals[row, begin[i] : begin[i] + EPISODE])
    np.testing.assert_array_equal(taken.past[0], days.arrivals[0, begin[0] - PAST_SECONDS : begin[0]])
    assert np.isnan(taken.past[3]).all()
    recent = recent_of(taken.load_recent)
    assert (recent.judged[:3].max(axis=1) > 0).all()
    assert (calendar_of(taken.load_calendar).seen_minutes[:3] > 5).all()
    np.testing.assert_array_equal(taken.load_recent[3], nothing_learned(1)[0][0])
    assert ((taken.initial >= taken.min_replicas) & (taken.initial <= taken.max_replicas)).all()


@pytest.mark.slow
def test_an_actor_that_changes_nothing_scores_what_the_rule_scores(pool):
    episodes = pool.take(np.arange(N), EPISODE, np.random.default_rng(6))
    still, ruled = run(episodes, FrozenActor(ON_THE_RULE)), run(episodes, Rule())
    np.testing.assert_array_equal(still.j, ruled.j)
    np.testing.assert_array_equal(still.ledger.billed, ruled.ledger.billed)
    unlearned = run(episodes, FrozenActor(ON_THE_RULE.model_copy(update={"learned": None})))
    assert (unlearned.j != ruled.j).any(), "what was learned makes a difference"


@pytest.mark.slow
def test_a_reward_that_is_compared_with_the_rules_is_nothing_where_nothing_is_changed():
    ranges = replace(RANGES, durations=(300,), intervals=(15, 30))
    env = SimulatorVecEnv(
        6, 1, contract=ON_THE_RULE.contract, rule=rule_of(ON_THE_RULE), ranges=ranges, hours=0.5, paired=True
    )
    env.reset()
    still = np.tile(NO_CHANGE + np.array([2, 2, 0]), (6, 1))
    for _ in range(25):  # beyond the end of an episode, so that another one begins
        assert env.step(still)[1].tolist() == [0.0] * 6
    rewards = [env.step(still + np.array([2, 0, 0]))[1] for _ in range(4)]
    assert np.abs(rewards).max() > 0
    env.close()
