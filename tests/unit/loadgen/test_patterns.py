"""The patterns: their shape, their seeds, and how a trace is rescaled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_loadgen import patterns
from rlscaler_loadgen.traces import Trace


def test_ramp_climbs_in_twenty_equal_steps() -> None:
    load = patterns.rate("ramp", 300)
    levels, lengths = np.unique(load, return_counts=True)
    assert load[0] == 1
    assert load[-1] == 100
    assert np.all(np.diff(load) >= 0)
    np.testing.assert_allclose(levels, np.linspace(1, 100, 20))
    assert set(lengths) == {15}


def test_spike_takes_the_middle_forty_percent() -> None:
    load = patterns.rate("spike", 300)
    assert set(load[:90]) == {10.0}
    assert set(load[90:210]) == {100.0}
    assert set(load[210:]) == {10.0}


def test_periodic_begins_at_the_low_level_and_reaches_the_high_one() -> None:
    load = patterns.rate("periodic", 600)
    assert load[0] == pytest.approx(10)
    assert load[150] == pytest.approx(100)
    assert load[300] == pytest.approx(10)
    assert load.mean() == pytest.approx(55)


def test_random_is_redrawn_every_20_to_60_seconds() -> None:
    load = patterns.rates("random", 2000, np.random.default_rng(1), 20)
    for row in load:
        changes = np.flatnonzero(np.diff(row)) + 1
        dwell = np.diff(np.concatenate([[0], changes]))
        assert dwell.min() >= 20
        assert dwell.max() <= 60
    assert load.min() >= 10
    assert load.max() <= 100
    assert load.mean() == pytest.approx(55, abs=4)


def test_trace_is_rescaled_by_its_percentile() -> None:
    trace = patterns.sample_trace()
    load = patterns.rate("trace", 1800, high=80, percentile=95)
    assert np.percentile(load, 95, method="inverted_cdf") == pytest.approx(80)
    np.testing.assert_allclose(load, trace.rate * 80 / trace.percentile(95), atol=1e-9)


def test_trace_repeats_and_keeps_its_volume() -> None:
    trace = Trace(np.array([1.0, 3.0, 2.0]), 5.0)
    load = patterns.rate("trace", 30, trace=trace, high=3, percentile=100)
    np.testing.assert_allclose(load[:15], np.repeat([1.0, 3.0, 2.0], 5))
    np.testing.assert_allclose(load[:15], load[15:])
    fast = patterns.rate("trace", 3, trace=trace, high=3, percentile=100, trace_speed=5)
    np.testing.assert_allclose(fast, [1.0, 3.0, 2.0])


@settings(max_examples=60)
@given(
    name=st.sampled_from(patterns.PATTERNS),
    duration=st.integers(1, 900),
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 5),
    random_phase=st.booleans(),
)
def test_every_pattern_is_seeded_and_within_its_levels(
    name: str, duration: int, seed: int, n: int, random_phase: bool
) -> None:
    options = {"random_phase": random_phase, "scale_range": (0.5, 2.0)}
    first, second = (
        patterns.rates(name, duration, np.random.default_rng(seed), n, **options)  # type: ignore[arg-type]
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    assert first.shape == (n, duration)
    assert np.all(np.isfinite(first))
    assert np.all(first >= 0)
    if name != "trace":
        assert first.max() <= 200 + 1e-9


def test_rows_take_the_patterns_in_turn() -> None:
    load = patterns.rates(["ramp", "spike"], 300, np.random.default_rng(0), 5)
    np.testing.assert_array_equal(load[0], patterns.rate("ramp", 300))
    np.testing.assert_array_equal(load[3], patterns.rate("spike", 300))
    np.testing.assert_array_equal(load[4], load[0])


def test_scale_and_phase_may_differ_by_row() -> None:
    load = patterns.rates("spike", 100, np.random.default_rng(0), 2, scale=np.array([1, 2]), phase=np.array([0, 0.5]))
    assert load[0].max() == 100
    assert load[1].max() == 200
    np.testing.assert_array_equal(load[1], 2 * np.roll(load[0], 50))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"patterns": "sawtooth"}, "sawtooth.*choose from ramp"),
        ({"patterns": "ramp", "duration_s": 0}, "duration_s"),
        ({"patterns": "ramp", "low": 20, "high": 10}, "low"),
        ({"patterns": "ramp", "scale": [1, 2, 3]}, "scale"),
        ({"patterns": "trace", "trace_speed": 0}, "trace_speed"),
    ],
)
def test_senseless_arguments_are_refused_by_name(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        patterns.rates(**{"duration_s": 60, "rng": np.random.default_rng(0), "n": 2, **arguments})  # type: ignore[arg-type]
