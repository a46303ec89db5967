"""Histories that can be trained on, and those that cannot."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.service_tuning.history import duration, prepare
from rlscaler_rl.workloads import Part

from .conftest import make_service, waves


def test_the_parts_follow_one_another_at_their_own_scale(history, service):
    pieces = [history.recording.pieces[part][0] for part in Part]
    assert np.array_equal(np.concatenate(pieces), waves())
    assert history.blocks(Part.TEST, service) == 4
    assert history.missing_seconds == 0
    assert history.smooth


def test_another_unit_is_told_by_the_capacity(service):
    with pytest.raises(EvaluationError, match=r"all replicas of demo/chat together carry 240 requests/s: another unit"):
        prepare(Trace(60 * waves(), 1.0), "per_minute.csv", service)
    with pytest.raises(EvaluationError, match="counter"):
        prepare(Trace(np.cumsum(waves()), 1.0), "counter.csv", service)


def test_too_short_says_how_long_it_has_to_be(service):
    with pytest.raises(EvaluationError, match=r"1 h of history.*at least 1 h 7 min.*2 h for a verdict"):
        prepare(Trace(waves(3600), 1.0), "short.csv", service)
    short = prepare(Trace(waves(5400), 1.0), "short.csv", service)
    assert short.missing_seconds == 1800


def test_a_longer_interval_needs_a_longer_history():
    with pytest.raises(EvaluationError, match="11 h 7 min"):
        prepare(Trace(waves(), 1.0), "short.csv", make_service(interval_seconds=300.0))


def test_what_the_figures_do_not_cover_is_said(service):
    rate = waves(9600)
    rate[-2400:] *= 3
    caveats = " ".join(prepare(Trace(rate, 1.0), "growing.csv", service).caveats)
    assert "covers 2 h 40 min" in caveats
    assert "outside what was trained" in caveats
    assert "raise maxReplicas" in caveats
    wide = prepare(Trace(waves(96_000).reshape(-1, 60).mean(1), 60.0), "wide.csv", service)
    assert "shorter than a bin" in " ".join(wide.caveats)


def test_bursts_are_told_from_waves(service):
    steps = np.where(np.arange(9600) % 600 < 120, 100.0, 10.0)
    assert not prepare(Trace(steps, 1.0), "steps.csv", service).smooth
    assert prepare(Trace(np.full(9600, 50.0), 1.0), "flat.csv", service).rise == 0


def test_silence_in_the_train_part_is_refused(service):
    rate = waves()
    rate[:5760] = 0
    with pytest.raises(EvaluationError, match=r"silent\.csv.*train part"):
        prepare(Trace(rate, 1.0), "silent.csv", service)


def test_durations_read_like_durations():
    assert [duration(s) for s in (0, 59, 3600, 4000, 90_000)] == ["0 min", "1 min", "1 h", "1 h 7 min", "25 h"]
