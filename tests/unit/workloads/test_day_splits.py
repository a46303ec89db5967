"""No day is judged that was learned from, groups stay whole, and no scale is taken from what is judged."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.workloads import Part, WorkloadError
from rlscaler_rl.workloads.day_splits import (
    SHARES,
    before_test_s,
    drawn_share,
    own_service,
    reference_rps,
    scale,
    span_s,
    transfer,
)
from rlscaler_rl.workloads.days import DAY, day_load, day_loads


@pytest.mark.parametrize("name", day_loads())
def test_own_service_learns_first_and_is_judged_later(name):
    load = day_load(name)
    parts = own_service(load)
    assert all(len(parts[part]) >= 1 for part in Part)
    days = [day for part in (Part.TRAIN, Part.TUNE, Part.TEST) for day in parts[part]]
    assert days == list(range(load.days))
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


def test_transfer_leaves_whole_groups_out_and_tests_every_load_once():
    splits = transfer()
    assert len(splits) >= 4
    tested = list(itertools.chain.from_iterable(split.test for split in splits))
    assert sorted(tested) == sorted(day_loads())
    for split in splits:
        assert split.train
        assert split.test
        assert not set(split.train) & set(split.test)
        groups = [{day_load(name).group for name in names} for names in (split.train, split.test)]
        assert not groups[0] & groups[1]


def test_a_group_that_is_torn_apart_would_be_seen():
    """The check above fails on an index whose group is in two folds, so it does check."""
    loads = dict(day_loads())
    loads["servegen_small"] = loads["servegen_small"].model_copy(update={"fold": 3})
    torn = [
        {loads[name].group for name in split.train} & {loads[name].group for name in split.test}
        for split in transfer(loads)
    ]
    assert any(torn)


def test_the_reference_is_of_the_train_days_only(monkeypatch):
    """Two days later the load is a thousand times as high; nothing of it reaches the scale."""
    load = day_load("servegen_small").model_copy(update={"bins": 3 * 1440, "width_s": 60.0})
    rate = np.concatenate([np.linspace(1, 100, 1440), np.full(2 * 1440, 1e5)])
    from rlscaler_rl.workloads import day_splits

    monkeypatch.setattr(day_splits, "day_load", lambda name: load)
    monkeypatch.setattr(day_splits, "day_trace", lambda name, folder=None: Trace(rate, 60.0))
    assert reference_rps("any") == pytest.approx(np.percentile(rate[:1440], 99))


def test_scale_makes_the_reference_the_share_of_the_capacity():
    assert 50.0 * scale(50.0, 240.0, 0.8) == pytest.approx(192.0)
    for wrong in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (float("nan"), 1, 1)):
        with pytest.raises(WorkloadError, match="have to be positive"):
            scale(*wrong)


def test_a_drawn_share_is_within_its_bounds_and_comes_from_the_seed():
    drawn = [drawn_share(np.random.default_rng(seed)) for seed in range(200)]
    assert SHARES[0] <= min(drawn) < max(drawn) <= SHARES[1]
    assert drawn == [drawn_share(np.random.default_rng(seed)) for seed in range(200)]
