"""Parts of the loads of days: no day is judged that was learned from, and no scale is taken from a judged day."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.workloads import Part, WorkloadError, days
from rlscaler_rl.workloads.days import (
    DAY,
    before_test_s,
    day_load,
    day_loads,
    own_service,
    reference_rps,
    scale,
    span_s,
)


@pytest.mark.parametrize("name", day_loads())
def test_own_service_learns_first_and_is_judged_later(name):
    load = day_load(name)
    parts = own_service(load)
    assert all(len(parts[part]) >= 1 for part in Part)
    in_order = [day for part in (Part.TRAIN, Part.TUNE, Part.TEST) for day in parts[part]]
    assert in_order == list(range(load.days))
    begin, end = span_s(load, parts[Part.TEST])
    assert end <= load.length_s
    assert (end - begin) == len(parts[Part.TEST]) * DAY
    assert len(parts[Part.TRAIN]) >= len(parts[Part.TEST])


@pytest.mark.parametrize("name", day_loads())
def test_scale_and_dispersion_know_nothing_of_tune_and_test_days(name):
    load = day_load(name)
    parts = own_service(load)
    _, known = before_test_s(load)
    assert known <= span_s(load, parts[Part.TUNE])[0] < span_s(load, parts[Part.TEST])[0]


def test_a_load_of_two_days_has_no_split():
    short = day_load("servegen_small").model_copy(update={"bins": 2 * DAY})
    with pytest.raises(WorkloadError, match="2 whole days; at least 3 are needed"):
        own_service(short)


def test_loads_of_one_group_have_one_fold():
    folds = {(load.group, load.fold) for load in day_loads().values()}
    assert len(folds) == len({group for group, _ in folds})


def test_the_reference_is_of_the_train_days_only(monkeypatch):
    """Two days later the load is a thousand times as high; nothing of it reaches the scale."""
    load = day_load("servegen_small").model_copy(update={"bins": 3 * 1440, "width_s": 60.0})
    rate = np.concatenate([np.linspace(1, 100, 1440), np.full(2 * 1440, 1e5)])
    monkeypatch.setattr(days, "day_load", lambda name: load)
    monkeypatch.setattr(days, "day_trace", lambda name, folder=None: Trace(rate, 60.0))
    assert reference_rps("any") == pytest.approx(np.percentile(rate[:1440], 99))


def test_scale_makes_the_reference_the_share_of_the_capacity():
    assert 50.0 * scale(50.0, 240.0, 0.8) == pytest.approx(192.0)
    for wrong in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (float("nan"), 1, 1)):
        with pytest.raises(WorkloadError, match="have to be positive"):
            scale(*wrong)
