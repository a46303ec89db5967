"""What training draws: stretches with a past, only train parts, the shares that are asked for, the same for a seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_core.models import load_bundled
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.generative import MODEL, draw
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import RANGES, Ranges
from rlscaler_rl.simulation.scenario import NOMINAL, PAST_SECONDS
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.workloads import HELD_OUT, Part, Recording, TraceLoads, WorkloadError, trace_loads
from rlscaler_rl.workloads.stretches import StretchLoads, trained_recordings

NOMINAL_ONLY = replace(RANGES, wholly_nominal_share=1.0, one_pool_share=0.0, unknown_past_share=0.0)


@pytest.fixture(scope="module")
def recorded():
    return StretchLoads(trained_recordings(), 0.5)


def own(train, test=()):
    pieces = {Part.TRAIN: tuple(map(np.array, train)), Part.TUNE: (), Part.TEST: tuple(map(np.array, test))}
    return Recording("own", pieces, reference=10.0)


def test_a_row_is_a_stretch_of_the_train_part(monkeypatch):
    monkeypatch.setattr(trace_loads, "SPEED_SHARE", 0.0)
    loads = TraceLoads(recordings=[own([np.arange(50.0), np.arange(100.0, 400.0)], [np.full(9, 1e6)])])
    drawn = loads.draw(500, 40, np.random.default_rng(0)) * 10
    steps = np.diff(drawn, axis=1)
    assert np.isin(np.rint(steps), (1, -49, -299)).all(), "one second after the other, from the begin after the end"
    assert drawn.max() < 400
    short = (drawn < 50).all(axis=1).mean()
    assert short == pytest.approx(50 / 350, abs=0.05), "long pieces come as often as they are long"


def test_a_recording_that_is_not_changed_is_played_as_it_is():
    loads = StretchLoads([own([np.arange(5000.0)])], 1.0, changed=False)
    drawn = loads(200, 40, np.random.default_rng(0))
    steps = np.rint(np.diff(drawn.rate, axis=1) * 10)
    assert np.isin(steps, (1, -4999)).all()
    np.testing.assert_allclose(drawn.daily_mean, 249.95)


def test_some_recordings_run_backwards_faster_or_are_mixed():
    loads = StretchLoads([own([np.arange(100_000.0)])], 1.0)
    rate = loads(2000, 100, np.random.default_rng(0)).rate * 10
    speed = (rate[:, -1] - rate[:, 0]) / 99
    speed = speed[np.abs(speed) < 5]  # the few that go on at the recording's begin
    assert (speed < 0).mean() == pytest.approx(0.3, abs=0.05)
    assert (np.abs(np.abs(speed) - 1) < 0.01).mean() == pytest.approx(0.75 * 0.6 + 0.25 * 0.36, abs=0.05)
    assert np.abs(speed).max() > 2
    assert np.abs(speed).min() < 0.7


def test_the_held_out_trace_is_not_among_them(recorded):
    assert HELD_OUT not in recorded.names
    assert len(recorded.names) == 4
    with pytest.raises(WorkloadError, match="own: has no tune part"):
        StretchLoads([own([np.ones(5)])], 1.0, part=Part.TUNE)


def test_without_recordings_all_is_drawn():
    drawn = StretchLoads([], 0.5)(10, 60, np.random.default_rng(3))
    np.testing.assert_array_equal(drawn.rate, draw(10, 60, np.random.default_rng(3), MODEL).rate)


def test_an_episode_begins_with_the_past_that_its_load_had():
    """A load that was ten times as high a minute before is known to the forecast when the episode begins."""
    fell = np.concatenate([np.full(PAST_SECONDS - 60, 0.5), np.full(60 + 600, 0.05)]).astype(np.float32)

    def loads(n, seconds, rng):
        return np.repeat(fell[None, :seconds], n, axis=0), np.ones(n)

    busy = replace(NOMINAL_ONLY, busy_share=(0.9, 0.9))

    drawn = randomised(3, np.random.default_rng(0), 30, 600, busy, loads)
    batch = Batch(drawn)
    remembered = batch.state.rate_value[:, -36:]
    high = remembered[:, :20].mean(axis=1)
    low = remembered[:, -5:].mean(axis=1)
    np.testing.assert_allclose(high / low, 10.0, rtol=0.2)
    assert (np.diff(batch.state.rate_time[:, -36:], axis=1) > 0).all()
    samples = batch.sense()
    np.testing.assert_allclose(samples.arrival_rate, low, rtol=0.3)
    assert (batch.state.rate_time[:, -1] > batch.state.rate_time[:, -2]).all(), "the past ends before the episode"


def test_a_past_that_is_not_known_leaves_no_history():
    drawn = randomised(4, np.random.default_rng(0), 30, 600, replace(NOMINAL_ONLY, unknown_past_share=1.0))
    assert np.isnan(Batch(drawn).state.rate_value).all()


def test_an_episode_begins_with_replicas_for_the_load_before():
    drawn = randomised(2000, np.random.default_rng(1), 30, 600, NOMINAL_ONLY)
    carried = (drawn.initial * drawn.rps).sum(axis=1)
    busy = drawn.past_rate > 30
    fits = (carried >= 0.9 * drawn.past_rate) & (carried <= 3 * drawn.past_rate)
    assert fits[busy].mean() > 0.7
    assert (drawn.initial >= 1).all()


def test_the_load_of_a_stretch_can_be_served_but_for_a_few():
    drawn = randomised(500, np.random.default_rng(2), 30, 600)
    capacity = (drawn.max_replicas * drawn.rps).sum(axis=1)
    crowded = np.quantile(drawn.rate, 0.995, axis=1) > 1.05 * capacity
    assert 0 < crowded.mean() < 0.08


def test_services_of_all_sizes_steps_and_single_pools_are_drawn():
    drawn = randomised(4000, np.random.default_rng(0), 30, 60)
    there = drawn.max_replicas[drawn.present]
    assert there.min() == RANGES.max_replicas[0]
    assert there.max() == RANGES.max_replicas[1]
    for pool in range(2):
        alone = drawn.present[:, pool] & ~drawn.present[:, 1 - pool]
        assert alone.mean() == pytest.approx(RANGES.one_pool_share / 2, abs=0.02)
    assert (drawn.step_size[:, 0] == 0).mean() == pytest.approx(
        RANGES.default_step_share * (1 - RANGES.wholly_nominal_share) + RANGES.wholly_nominal_share, abs=0.03
    )
    for name in ("slo_ms", "price_ratio"):
        low, high = getattr(RANGES, name)
        column = getattr(drawn, name)
        assert low <= column.min() < 1.3 * low
        assert high / 1.3 < column.max() <= high
    assert (drawn.timeout >= drawn.slo_ms / 1000).all(), "no client gives up before the answer is late"


def test_the_target_of_the_floor_is_the_default_or_another():
    drawn = randomised(4000, np.random.default_rng(0), 30, 60).target_utilization
    assert (drawn == 0.8).mean() == pytest.approx(RANGES.floor_share, abs=0.03)
    assert drawn.min() >= RANGES.floor[0]
    assert drawn.max() <= RANGES.floor[1]


def test_a_part_of_the_episodes_has_the_nominal_service_in_every_column():
    drawn = randomised(4000, np.random.default_rng(0), 30, 60)
    nominal = np.ones(len(drawn), dtype=bool)
    for name in ("present", "max_replicas", "slo_ms", "rps", "price_ratio", "cold_start_low", "cv", "noise"):
        column = getattr(drawn, name) == np.asarray(NOMINAL[name])
        nominal &= column.all(axis=1) if column.ndim == 2 else column
    assert nominal.mean() == pytest.approx(RANGES.wholly_nominal_share, abs=0.03)
    quick = (drawn.window[nominal] == NOMINAL["window"]) & (drawn.scrape[nominal] == NOMINAL["scrape"])
    assert 0.5 < quick.mean() < 0.8, "the others are measured as any service"
    none = randomised(2000, np.random.default_rng(0), 30, 60, Ranges(wholly_nominal_share=0.0))
    assert (none.noise != NOMINAL["noise"]).all()


def test_nobody_declares_the_capacity_rightly():
    drawn = randomised(4000, np.random.default_rng(0), 30, 60)
    off = drawn.rps / drawn.believed_rps - 1
    exact = (np.abs(off) < 1e-9).all(axis=1)
    assert exact.mean() == pytest.approx(RANGES.exact_share, abs=0.03)
    assert np.abs(off).max() <= RANGES.believed_error + 1e-9
    assert off.min() < -0.35
    assert off.max() > 0.35
    assert (drawn.drift[:, 0] > 0).mean() == pytest.approx(RANGES.drift_share, abs=0.03)
    assert (drawn.fall[:, 0] > 0).mean() == pytest.approx(RANGES.fall_share, abs=0.03)
    assert (drawn.start_seconds[:, 0] > 0).mean() == pytest.approx(RANGES.priced_share, abs=0.03)
    assert set(drawn.scrape.tolist()) == set(RANGES.scrape)


def test_lateness_weighs_by_the_requests_of_the_day():
    from rlscaler_rl.simulation import objectives

    drawn = randomised(50, np.random.default_rng(0), 30, 60, NOMINAL_ONLY)
    busy = drawn.daily_mean > 1
    np.testing.assert_allclose(objectives.norms(drawn).mean_rate[busy], drawn.daily_mean[busy])


def test_training_on_recorded_loads_repeats_itself_bit_by_bit(recorded):
    def play():
        env = SimulatorVecEnv(9, 5, ranges=Ranges(durations=(60,)), loads=recorded)
        seen = [env.reset()]
        for _ in range(6):
            observations, rewards, _, _ = env.step(np.tile([2, 2, 1], (9, 1)))
            seen += [observations, rewards]
        env.close()
        return seen

    for one, other in zip(play(), play(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_rule_serves_what_is_drawn():
    """Training is of no use where nothing that is done matters: the rule keeps most stretches in time."""
    from rlscaler_rl.simulation.episode import run

    drawn = randomised(60, np.random.default_rng(5), 30, 600)
    late = run(drawn, load_bundled("rule")).result.late_percent
    assert np.median(late) < 3
