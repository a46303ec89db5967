"""The drawn loads are compared with the recorded ones by statistics that say what they claim."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.workloads import likeness


def test_the_dispersion_of_chance_alone_is_one_and_nothing_jumps():
    found = likeness.statistics(np.full((30, 3600), 7.0, np.float32), np.random.default_rng(0))
    for width in likeness.WIDTHS:
        assert np.mean(found[f"dispersion, {width} s"]) == pytest.approx(1.0, abs=0.1)
    assert np.mean(found["autocorrelation, 60 s"]) == pytest.approx(0.0, abs=0.05)
    assert (found["jumps of 1.5x an hour"] == 0).all()


def test_jumps_are_counted_once_and_by_their_height():
    rate = np.full((5, 3600), 10.0, np.float32)
    for begin in (600, 1800, 3000):
        rate[:, begin : begin + 40] = 40.0
    found = likeness.statistics(rate, np.random.default_rng(0))
    assert (found["jumps of 2.5x an hour"] == 3).all()
    assert (likeness.statistics(rate, np.random.default_rng(1))["jumps of 1.5x an hour"] == 3).all()


def test_a_load_without_requests_has_no_statistics():
    found = likeness.statistics(np.zeros((2, 3600), np.float32), np.random.default_rng(0))
    assert all(np.isnan(values).all() for values in found.values())


@pytest.mark.slow
def test_what_training_draws_covers_the_recorded_loads():
    found = likeness.drawn_and_recorded(150)
    assert len(found) == 5
    assert likeness.uncovered(found) == {name: [] for name in found if name != "drawn"}


def test_a_load_that_is_not_covered_is_named():
    drawn = {"a": np.linspace(0, 1, 100)}
    assert likeness.uncovered({"drawn": drawn, "x": {"a": np.full(5, 3.0)}}) == {"x": ["a"]}
