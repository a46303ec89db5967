"""Foresight: the highest rate ahead, smoothing, and when replicas are ordered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlscaler_core.decision.tables import make_params
from rlscaler_rl.baselines.hindsight import Hindsight, HindsightSettings, highest_ahead
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.scenario import from_rate


@given(
    arrays(np.float32, (3, 40), elements=st.integers(0, 100).map(np.float32)),
    st.lists(st.integers(1, 60), min_size=3, max_size=3),
)
@settings(max_examples=100)
def test_the_highest_rate_ahead_is_what_looking_at_every_second_finds(rate, lead):
    found = highest_ahead(rate, np.array(lead))
    expected = [[row[t : t + ahead].max() for t in range(len(row))] for row, ahead in zip(rate, lead, strict=True)]
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_a_smoothed_load_hides_a_short_peak():
    rate = np.full((1, 120), 10.0)
    rate[:, 60] = 100.0
    params = make_params(1, requests_per_second=(20.0, 4.0))
    sharp, smooth = Hindsight(rate), Hindsight(rate, HindsightSettings(smooth_seconds=31.0))
    sharp.reset(params)
    smooth.reset(params)
    assert sharp.peaks[0].max() > 100
    assert smooth.peaks[0].max() < 20


@pytest.mark.slow
def test_foresight_costs_less_than_a_constant_and_is_rarely_late():
    rate = np.full((1, 600), 10.0)
    rate[:, 300:400] = 60.0
    played = run(from_rate(rate, [1], initial=(1, 1)), Hindsight(rate)).result
    assert played.late_percent[0] < 1.0
    assert played.cost[0] < 3.0
