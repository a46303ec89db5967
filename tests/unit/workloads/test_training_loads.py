"""Recorded loads in training: only train parts, the shares that are asked for, and the same for the same seed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import RANGES, Ranges
from rlscaler_rl.simulation.scenario import NOMINAL
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.workloads import HELD_OUT, Part, Recording, TraceLoads, WorkloadError, trace_loads

RECORDED_ONLY = Ranges(trace_share=1.0, nominal_load_share=1.0, wholly_nominal_share=1.0, one_pool_share=0.0)


@pytest.fixture(scope="module")
def recorded():
    return TraceLoads()


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


def test_some_rows_are_faster_or_slower():
    loads = TraceLoads(recordings=[own([np.arange(10_000.0)])])
    drawn = loads.draw(2000, 100, np.random.default_rng(0)) * 10
    speeds = (drawn[:, -1] - drawn[:, 0]) / 99
    speeds = speeds[speeds > 0]
    assert (np.abs(speeds - 1) < 0.01).mean() == pytest.approx(1 - trace_loads.SPEED_SHARE, abs=0.05)
    assert 0.45 < speeds.min() < 0.6
    assert 1.7 < speeds.max() < 2.05


def test_the_held_out_trace_is_not_among_them(recorded):
    assert HELD_OUT not in recorded.names
    assert len(recorded.names) == 4
    with pytest.raises(WorkloadError, match="own: has no tune part"):
        TraceLoads(Part.TUNE, recordings=[own([np.ones(5)])])


def test_the_share_of_recorded_loads_is_what_was_asked_for(recorded):
    drawn = randomised(4000, np.random.default_rng(0), 30, 60, RANGES, recorded.draw)
    assert (drawn.pattern == "trace").mean() == pytest.approx(RANGES.trace_share, abs=0.03)
    assert (drawn.pattern == "steady").mean() == pytest.approx(RANGES.steady_share, abs=0.03)
    assert (drawn.pattern == "bursts").mean() == pytest.approx(RANGES.burst_share, abs=0.02)
    assert set(drawn.pattern.tolist()) == {"ramp", "spike", "periodic", "random", "bursts", "steady", "trace"}


def test_bursts_are_long_and_high_by_chance():
    none = {"trace_share": 0.0, "steady_share": 0.0, "one_pool_share": 0.0}
    drawn = randomised(
        500, np.random.default_rng(0), 30, 600, Ranges(burst_share=1.0, wholly_nominal_share=1.0, **none)
    )
    low, high = drawn.rate.min(axis=1), drawn.rate.max(axis=1)
    assert (high <= 0.85 * 240 + 1e-3).all()
    assert (low <= 0.3 * 0.85 * 240 + 1e-3).all()
    jumps = (np.diff(drawn.rate, axis=1) > 5).sum(axis=1)
    assert np.percentile(jumps, 90) > 8 > 4 > np.percentile(jumps, 10)


def test_the_target_of_the_floor_is_the_default_or_another():
    drawn = randomised(4000, np.random.default_rng(0), 30, 60).target_utilization
    assert (drawn == 0.8).mean() == pytest.approx(RANGES.floor_share, abs=0.03)
    assert drawn.min() >= RANGES.floor[0]
    assert drawn.max() <= RANGES.floor[1]


def test_on_the_nominal_service_the_reference_is_the_patterns_peak():
    flat = TraceLoads(recordings=[own([np.full(100, 10.0)])])
    drawn = randomised(50, np.random.default_rng(0), 30, 60, RECORDED_ONLY, flat.draw)
    np.testing.assert_allclose(drawn.rate, 100, rtol=1e-6)
    scaled = replace(RECORDED_ONLY, nominal_load_share=0.0)
    levels = randomised(2000, np.random.default_rng(0), 30, 60, scaled, flat.draw).rate[:, 0]
    assert levels.min() == pytest.approx(30, abs=1)
    assert levels.max() == pytest.approx(150, abs=3)


def test_a_part_of_the_episodes_has_the_nominal_service_in_every_column():
    drawn = randomised(4000, np.random.default_rng(0), 30, 60)
    nominal = np.ones(len(drawn), dtype=bool)
    for name in ("present", "max_replicas", "slo_ms", "rps", "price_ratio", "cold_start_low", "cv", "window", "noise"):
        column = getattr(drawn, name) == np.asarray(NOMINAL[name])
        nominal &= column.all(axis=1) if column.ndim == 2 else column
    assert nominal.mean() == pytest.approx(RANGES.wholly_nominal_share, abs=0.03)
    assert (drawn.believed_rps[nominal] == NOMINAL["rps"]).all()
    none = randomised(2000, np.random.default_rng(0), 30, 60, Ranges(wholly_nominal_share=0.0))
    assert (none.noise != NOMINAL["noise"]).all()


def test_training_on_recorded_loads_repeats_itself_bit_by_bit(recorded):
    def play():
        env = SimulatorVecEnv(9, 5, ranges=Ranges(durations=(60,), trace_share=0.5), loads=recorded.draw)
        seen = [env.reset()]
        for _ in range(6):
            observations, rewards, _, _ = env.step(np.tile([2, 2, 1], (9, 1)))
            seen += [observations, rewards]
        env.close()
        return seen

    for one, other in zip(play(), play(), strict=True):
        np.testing.assert_array_equal(one, other)
