"""What ships: the series are the recorded ones, attributed, cut in the order of time, and small."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from rlscaler_loadgen.traces import Trace, read_trace, write_trace
from rlscaler_rl.workloads import TRACES, Part, WorkloadError, cut, episodes
from rlscaler_rl.workloads import library as shipped
from rlscaler_rl.workloads.facts import named, own
from rlscaler_rl.workloads.library import WHOLE, data_file, recording, splits
from rlscaler_rl.workloads.sample import busiest, by_time

LIMIT_BYTES = 600_000
LIMIT_OF_DAYS_BYTES = 4 * 2**20


@pytest.mark.parametrize("name", TRACES)
def test_samples_have_the_recorded_digests_and_name_source_and_licence(name):
    split = splits().traces[name]
    for sample in split.sample.values():
        trace = read_trace(data_file(sample.file))
        assert trace.digest() == sample.digest
        assert trace.length_s == sample.seconds
        text = "\n".join(trace.comments)
        assert f"Source: {split.source}" in text
        assert f"Licence: {split.licence}" in text
    if WHOLE in split.sample:
        assert split.sample[WHOLE].digest == split.digest


def test_what_ships_is_small():
    assert sum(path.stat().st_size for path in data_file(".").glob("*.csv.gz")) <= LIMIT_BYTES
    assert sum(path.stat().st_size for path in data_file("days").iterdir()) <= LIMIT_OF_DAYS_BYTES


@pytest.mark.parametrize("name", TRACES)
def test_parts_follow_one_another_and_samples_lie_inside_them(name):
    split = splits().traces[name]
    spans = [span for part in Part for span in split.parts.get(part, ())] or sorted(sum(split.folds, ()))
    assert all(begin < end for begin, end in spans)
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert spans[-1][1] <= split.bins * split.width_s
    for part, sample in split.sample.items():
        if part != WHOLE:
            begin, end = split.parts[Part(part)][0]
            assert begin <= sample.begin_s
            assert sample.begin_s + sample.seconds <= end


@pytest.mark.parametrize("name", TRACES)
def test_recordings_are_rescaled_by_their_train_part(name):
    made = recording(name)
    train = made.pieces[Part.TRAIN]
    assert (np.percentile(np.concatenate(train), 99) if train else made.reference) >= made.reference * 0.999
    assert made.seconds(Part.TEST) >= 1800


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The only full file that ships is also in the folder."""
    shutil.copy(data_file("azure_conv.csv.gz"), tmp_path / splits().traces["azure_conv"].file)
    return tmp_path


def test_a_folder_of_full_traces_takes_the_place_of_the_samples(folder):
    ours, theirs = (episodes("azure_conv", Part.TEST, runs=1, traces=traces) for traces in (None, folder))
    np.testing.assert_array_equal(ours.arrivals, theirs.arrivals)
    with pytest.raises(WorkloadError, match=r"worldcup98-60s\.csv\.gz: no such file; the folder must hold"):
        episodes("worldcup", Part.TEST, traces=folder)


def test_another_series_under_a_known_name_is_refused(folder):
    path = folder / splits().traces["azure_conv"].file
    write_trace(path, Trace(read_trace(path).rate * 1.1, 1.0))
    with pytest.raises(WorkloadError, match=r"azure-llm-2023-conv.*not the series that was cut"):
        recording("azure_conv", folder.absolute().joinpath())
    path.write_text("time_s,requests_per_s\n0,1\n1,-1\n")
    with pytest.raises(WorkloadError, match=r"azure-llm-2023-conv-1s\.csv\.gz:3: the rate is negative"):
        recording("azure_conv", folder)
    with pytest.raises(WorkloadError, match="worldcups: no recorded workload"):
        shipped.recording("worldcups")


def test_the_rules_of_the_splits_can_be_followed_again():
    """On a trace whose only busy hours are known."""
    rate = np.full(1000, 5.0)
    rate[600:660:2] = 50.0
    trace = Trace(rate, 60.0)
    assert by_time(trace) == {
        Part.TRAIN: ((0, 36_000),),
        Part.TUNE: ((36_000, 45_000),),
        Part.TEST: ((45_000, 60_000),),
    }
    assert busiest(trace, 0, 60_000, 3600) == 36_000
    assert busiest(trace, 1800, 60_000, 7200) == 1800 + 9 * 3600


def test_a_trace_of_ones_own_is_cut_by_time():
    rate = np.concatenate([np.full(600, 2.0), np.full(150, 3.0), np.full(250, 4.0)])
    made = cut(Trace(rate, 1.0), "own")
    assert [set(made.pieces[part][0].tolist()) for part in Part] == [{2.0}, {3.0}, {4.0}]
    assert made.reference == 2.0
    with pytest.raises(WorkloadError, match="own: its train part, the first 60 %, is silent"):
        cut(Trace(np.where(np.arange(1000) < 600, 0.0, rate), 1.0), "own")


def test_facts_are_those_of_the_traces():
    found = {one.name: one for one in named()}
    assert found["azure_code"].dispersion == pytest.approx(72, abs=1)
    assert found["azure_conv"].dispersion == pytest.approx(4, abs=0.5)
    assert found["azure_conv"].blocks == {"train": 1, "tune": 1, "test": 3}
    assert found["worldcup"].width_s == 60
    poisson = Trace(np.random.default_rng(0).poisson(20, 20_000).astype(float), 1.0, ("Source: a die", "Licence: none"))
    fact = own(poisson, "own")
    assert fact.dispersion == pytest.approx(1, abs=0.1)
    assert (fact.source, fact.licence) == ("a die", "none")
    assert (fact.p50, fact.peak) == (20, poisson.rate.max())
