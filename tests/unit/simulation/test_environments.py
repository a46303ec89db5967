"""The environments as learning algorithms see them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from rlscaler_core.decision.observation import NEUTRAL, ObservationContract
from rlscaler_core.decision.rule import DEFAULT_SETTINGS
from rlscaler_core.decision.types import OBSERVATIONS
from rlscaler_rl.simulation import privileged
from rlscaler_rl.simulation.gym_env import SimulatorEnv
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import Ranges, envelope
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv

N = 24
SHORT = Ranges(durations=(60, 120))


@pytest.mark.filterwarnings("ignore:.*render.*")
def test_the_single_environment_passes_the_checkers():
    check_env(SimulatorEnv(), skip_render_check=True)
    check_env_for_sb3(SimulatorEnv())


def test_the_single_environment_ends_by_time_limit_with_its_figures():
    env = SimulatorEnv("periodic", 120, 30)
    env.reset(seed=1)
    for step in range(4):
        _, reward, terminated, truncated, info = env.step(np.array([2, 3, 1]))
        assert np.isfinite(reward)
        assert (terminated, truncated) == (False, step == 3)
    assert info["cost"] > 0
    assert 0 <= info["late_percent"] <= 100


@pytest.mark.slow
def test_equal_seeds_give_equal_trajectories_and_others_do_not():
    def rewards(seed: int) -> np.ndarray:
        env = SimulatorVecEnv(N, seed, ranges=SHORT)
        env.reset()
        rng = np.random.default_rng(0)
        return np.stack([env.step(rng.integers(0, [5, 5, 3], (N, 3)))[1] for _ in range(12)])

    assert np.array_equal(rewards(5), rewards(5))
    assert not np.array_equal(rewards(5), rewards(6))


@pytest.mark.parametrize("asymmetric", [False, True])
def test_ended_episodes_restart_and_hand_over_their_last_observation(asymmetric):
    env = SimulatorVecEnv(N, 0, ranges=SHORT, asymmetric=asymmetric)
    width = 40 + (privileged.WIDTH if asymmetric else 0)
    assert env.observation_space.shape == (width,)
    before = env.reset()
    ended = 0
    for _ in range(10):
        observations, rewards, dones, infos = env.step(np.tile([2, 2, 1], (N, 1)))
        assert observations.shape == before.shape == (N, width)
        assert observations.dtype == rewards.dtype == np.float32
        assert np.isfinite(observations).all()
        assert np.isfinite(rewards).all()
        for row in np.flatnonzero(dones):
            assert infos[row]["TimeLimit.truncated"]
            assert infos[row]["terminal_observation"].shape == (width,)
            older = observations[row, :30].reshape(3, 10)
            assert np.array_equal(older, np.tile(NEUTRAL, (3, 1)).astype(np.float32)), "nothing is known from before"
            ended += 1
        assert all(not infos[row] for row in np.flatnonzero(~dones))
    assert ended > N


@pytest.mark.slow
def test_compared_with_the_rule_the_rule_earns_nothing_and_another_does():
    """What no policy can do anything about cancels: lateness that the rule has too is not held against the actor."""
    still, more = np.tile([2, 2, 1], (N, 1)), np.tile([4, 4, 1], (N, 1))
    env = SimulatorVecEnv(N, 3, ranges=SHORT, rule=DEFAULT_SETTINGS, paired=True)
    env.reset()
    for _ in range(12):
        assert (env.step(still)[1] == 0).all(), "episodes that begin anew are compared from their begin"
    plain = SimulatorVecEnv(N, 3, ranges=SHORT, rule=DEFAULT_SETTINGS)
    paired = SimulatorVecEnv(N, 3, ranges=SHORT, rule=DEFAULT_SETTINGS, paired=True)
    rule = SimulatorVecEnv(N, 3, ranges=SHORT, rule=DEFAULT_SETTINGS)
    for one in (plain, paired, rule):
        one.reset()
    for _ in range(8):
        got, wanted = paired.step(more)[1], plain.step(more)[1] - rule.step(still)[1]
        np.testing.assert_allclose(got, wanted, atol=1e-6)
    with pytest.raises(ValueError, match="give a rule"):
        SimulatorVecEnv(N, paired=True)


def test_one_row_behaves_as_it_does_alone_in_its_batch():
    """Rows do not touch each other: every duration, one interval, actions by row."""
    contract = ObservationContract(stack_size=1)
    ranges = Ranges(intervals=(15,), durations=(60,))
    many = SimulatorVecEnv(N, 3, contract=contract, ranges=ranges, threads=1)
    many.reset()
    rng = np.random.default_rng(1)
    actions = rng.integers(0, [5, 5, 3], (3, N, 3))
    scenarios = many.groups[0].batch.scenarios.copy()
    together = [many.step(action)[1] for action in actions]
    row = scenarios.take(slice(4, 5))
    alone = SimulatorVecEnv(1, contract=contract, sources=[lambda n: row.take(np.zeros(n, np.int64))])
    alone.reset()
    for step, action in enumerate(actions):
        assert alone.step(action[4:5])[1][0] == pytest.approx(together[step][4], rel=1e-6)


def test_randomisation_stays_within_the_envelope_it_states():
    stated = envelope()
    drawn = randomised(4000, np.random.default_rng(0), 15, 60)
    ratio = drawn.rps[:, 0] / drawn.rps[:, 1]
    mean = (drawn.cold_start_low + drawn.cold_start_high) / 2
    for values, (low, high) in (
        (drawn.slo_ms, stated["slo_ms"]),
        (1 / drawn.price_ratio, stated["price_ratio"]),
        (ratio, stated["rps_ratio"]),
        (mean[:, 0], stated["cold_start_seconds"]["gpu"]),
        (mean[:, 1], stated["cold_start_seconds"]["cpu"]),
        (drawn.max_replicas[drawn.present[:, 0], 0], stated["max_replicas"]["gpu"]),
        (drawn.max_replicas[drawn.present[:, 1], 1], stated["max_replicas"]["cpu"]),
    ):
        assert values.min() >= low - 1e-9
        assert values.max() <= high + 1e-9
    single = ~drawn.present.all(1)
    assert 0.15 < single.mean() < 0.25
    assert (drawn.max_replicas[~drawn.present] == 0).all()
    assert (drawn.initial[~drawn.present] == 0).all()


def test_the_absent_pool_is_fed_as_zero_replicas():
    """What the training policy recognises absence by."""
    env = SimulatorVecEnv(300, 0, ranges=Ranges(durations=(120,), one_pool_share=0.5))
    observations = env.reset()
    columns = [30 + OBSERVATIONS.index(name) for name in ("gpu_replicas", "cpu_replicas")]
    present = env.together([group.batch.scenarios.present for group in env.groups])
    assert np.array_equal(observations[:, columns] > 0, present)
    observations = env.step(np.tile([0, 0, 1], (300, 1)))[0]
    assert np.array_equal(observations[:, columns] > 0, present)


@pytest.mark.slow
def test_the_number_of_threads_changes_nothing():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, [5, 5, 3], (40, 50, 3))
    one, three = (SimulatorVecEnv(50, 5, asymmetric=True, stagger=True, threads=threads) for threads in (1, 3))
    assert np.array_equal(one.reset(), three.reset())
    for action in actions:
        (seen, reward, done, infos), others = one.step(action), three.step(action)
        assert all(np.array_equal(left, right) for left, right in zip((seen, reward, done), others[:3], strict=True))
        for row in np.flatnonzero(done):
            assert infos[row]["episode"] == others[3][row]["episode"]
            assert np.array_equal(infos[row]["terminal_observation"], others[3][row]["terminal_observation"])
    assert len(one.groups) == 1
    assert len(three.groups) == 3
