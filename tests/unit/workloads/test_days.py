"""The library of days: its index, its files, and the rate of every second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlscaler_loadgen.traces import Trace, read_trace, write_trace
from rlscaler_rl.workloads import WorkloadError
from rlscaler_rl.workloads.days import (
    DAY,
    Seconds,
    SecondsOf,
    day_load,
    day_loads,
    day_trace,
    path_of,
    seconds_of_day_load,
    there,
)
from rlscaler_rl.workloads.library import splits

SHIPPED = [name for name, load in day_loads().items() if load.ships]


def test_there_are_twelve_loads_and_forty_days_of_at_least_six_origins():
    loads = day_loads().values()
    assert len(loads) >= 12
    assert sum(load.days for load in loads) >= 40
    assert len({load.group for load in loads}) >= 6
    assert {"llm", "web", "database", "demand"} <= {load.kind for load in loads}


@pytest.mark.parametrize("name", day_loads())
def test_every_row_states_source_licence_and_how_its_file_is_made(name):
    load = day_load(name)
    assert load.source
    assert load.licence
    assert load.what
    assert load.ships != bool(load.recipe and load.originals)
    assert load.days >= 1
    assert load.seconds == Seconds.DRAWN or load.width_s <= 1
    if load.begin is None:
        assert load.first_midnight_s == 0


@pytest.mark.parametrize("name", SHIPPED)
def test_what_ships_is_the_series_of_the_index(name):
    load, trace = day_load(name), day_trace(name)
    assert (len(trace.rate), trace.width_s) == (load.bins, load.width_s)
    assert path_of(name).stat().st_size < 3 * 2**20


def test_a_trace_that_is_also_a_workload_is_the_same_series_in_both_indexes():
    """One file, one digest: what `--traces` takes for the whole trace is what the days are made of."""
    for split in splits().traces.values():
        same = [load for load in day_loads().values() if load.file == split.file]
        assert [load.digest for load in same] == [split.digest] * len(same)
    assert len({load.file for load in day_loads().values()} & {one.file for one in splits().traces.values()}) == 3


def test_a_day_begins_at_midnight_where_the_clock_is_known():
    worldcup = day_load("worldcup")
    assert worldcup.first_midnight_s == 2.5 * 3600
    assert worldcup.days == 86


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("RLSCALER_DAYS", str(tmp_path))
    return tmp_path


def test_a_file_that_is_not_there_names_address_and_command(missing):
    assert there() == SHIPPED
    with pytest.raises(
        WorkloadError, match=r"no such file; fetch https://raw.*elb_request.* `rlscaler trace make balancer"
    ):
        day_trace("balancer")
    with pytest.raises(WorkloadError, match=r"nothing: no load of the library of days; there are servegen_large"):
        day_trace("nothing")


def test_a_file_with_another_series_is_refused(missing):
    write_trace(missing / "balancer.csv.gz", Trace(np.arange(1.0, 10.0), 300.0))
    assert "balancer" in there()
    with pytest.raises(WorkloadError, match=r"another series than the index knows.* make it again"):
        day_trace("balancer")


def minutes(days: int = 3) -> Trace:
    rng = np.random.default_rng(0)
    return Trace(rng.gamma(20, 5, days * 1440), 60.0)


def test_a_second_has_the_same_rate_in_every_stretch():
    load = SecondsOf(minutes(), "mine", (0, DAY))
    whole = load.rate(0, 3 * DAY)
    for begin, end in ((0, 1), (59, 61), (100, DAY + 7), (DAY, 2 * DAY), (2 * DAY - 1, 3 * DAY)):
        np.testing.assert_array_equal(load.rate(begin, end), whole[begin:end])


def test_the_bins_of_a_stretch_keep_their_means_and_a_seed_its_seconds():
    trace = minutes()
    first, again, other = (SecondsOf(trace, "mine", (0, DAY), seed).rate(0, 3 * DAY) for seed in (0, 0, 1))
    np.testing.assert_allclose(first.reshape(-1, 60).mean(1), trace.rate)
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.9


def test_a_bin_that_does_not_divide_the_day_is_whole_too():
    load = SecondsOf(Trace(np.arange(1.0, 201.0), 7000.0), "mine", (0, DAY))
    drawn = load.rate(0, 1_400_000).reshape(-1, 7000).mean(1)
    np.testing.assert_allclose(drawn, np.arange(1.0, 201.0))


def test_recorded_seconds_are_played_as_they_are():
    rate = np.random.default_rng(0).poisson(5, DAY + 10).astype(float)
    load = SecondsOf(Trace(rate, 1.0), "mine", (0, DAY))
    assert not load.drawn
    assert load.variance == 0
    np.testing.assert_array_equal(load.rate(5, DAY), rate[5:DAY])


def test_a_stretch_outside_of_the_load_and_a_bin_of_part_seconds_are_refused():
    load = SecondsOf(minutes(), "mine", (0, DAY))
    for begin, end in ((-1, 5), (5, 5), (0, 3 * DAY + 1)):
        with pytest.raises(WorkloadError, match="ask for less"):
            load.rate(begin, end)
    with pytest.raises(WorkloadError, match="whole seconds"):
        SecondsOf(Trace(np.ones(10), 2.5), "mine", (0, 10))


def test_the_dispersion_is_measured_before_the_judged_part():
    quiet = np.full(2 * 1440, 100.0)
    wild = np.random.default_rng(0).gamma(2, 50, 1440)
    trace = Trace(np.concatenate([quiet, wild]), 60.0)
    assert SecondsOf(trace, "mine", (0, 2 * DAY)).variance == 0
    assert SecondsOf(trace, "mine", (2 * DAY, 3 * DAY)).variance > 0.1


def test_a_shipped_load_gives_a_day_of_seconds():
    load = seconds_of_day_load("worldcup")
    begin = day_load("worldcup").first_midnight_s
    rate = load.rate(begin, begin + DAY)
    assert rate.shape == (DAY,)
    assert load.drawn
    assert load.variance > 0
    bins = read_trace(path_of("worldcup")).rate[150 : 150 + 1440]
    np.testing.assert_allclose(rate.reshape(-1, 60).mean(1), bins)
