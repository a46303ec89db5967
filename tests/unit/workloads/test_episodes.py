"""Episodes of every workload: parts that share nothing, blocks that do not overlap, equal seeds equal conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_rl.workloads import (
    EXTRAS,
    HELD_OUT,
    NAMES,
    PATTERNS,
    TRACES,
    VARIED,
    Part,
    Recording,
    WorkloadError,
    blocks,
    episodes,
)

SMALL = {"runs": 2, "episodes": 4, "duration_seconds": 300}


def columns(scenarios):
    return {
        name: getattr(scenarios, name) for name in ("rate", "arrivals", "seed", "key", "initial", "rps", "past_rate")
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_episodes_are_a_function_of_their_arguments(name):
    one, same, other = (episodes(name, Part.TEST, **SMALL, seed=seed) for seed in (3, 3, 30))
    for column, values in columns(one).items():
        np.testing.assert_array_equal(values, columns(same)[column])
    assert len(one) == 8
    assert not np.array_equal(one.arrivals, other.arrivals)
    assert len(np.unique(one.key)) == 8


@pytest.mark.parametrize("name", NAMES)
def test_a_run_added_leaves_the_others_as_they_were_and_is_the_first_of_the_next_seed(name):
    few, more = episodes(name, Part.TEST, **SMALL), episodes(name, Part.TEST, **SMALL | {"runs": 3})
    np.testing.assert_array_equal(few.arrivals, more.arrivals[:8])
    if name not in ("one_pool", "varied", "flat"):
        np.testing.assert_array_equal(episodes(name, Part.TEST, **SMALL, seed=1).arrivals, more.arrivals[4:])


@pytest.mark.parametrize("name", [*PATTERNS, *VARIED, *EXTRAS])
def test_parts_of_drawn_loads_share_no_seed(name):
    seeds = [set(episodes(name, part, **SMALL).seed.tolist()) for part in Part]
    assert len(set.union(*seeds)) == 24


@pytest.mark.parametrize("name", TRACES)
def test_every_episode_of_a_recording_has_a_block_of_its_own_as_long_as_there_are_any(name):
    count = blocks(name, Part.TEST, 300)
    assert count >= 5
    made = episodes(name, Part.TEST, runs=1, episodes=count + 2, duration_seconds=300)
    assert len(np.unique(made.rate, axis=0)) == count
    np.testing.assert_array_equal(made.rate[-2:], made.rate[:2])
    assert not np.array_equal(made.arrivals[-2:], made.arrivals[:2])


def test_the_held_out_trace_is_cut_into_folds():
    with pytest.raises(WorkloadError, match=r"azure_code: has no train part.*train on the others"):
        episodes(HELD_OUT, Part.TRAIN)
    with pytest.raises(WorkloadError, match="name one of the folds 0 to 1"):
        episodes(HELD_OUT, Part.TUNE)
    with pytest.raises(WorkloadError, match="fold 2"):
        blocks(HELD_OUT, Part.TEST, fold=2)
    with pytest.raises(WorkloadError, match="no folds"):
        blocks("azure_conv", Part.TEST, fold=0)
    for fold in (0, 1):
        tested, tuned = (
            {tuple(row) for row in episodes(HELD_OUT, part, fold=f, runs=1).rate.tolist()}
            for part, f in ((Part.TEST, fold), (Part.TUNE, 1 - fold))
        )
        assert tested == tuned
    assert blocks(HELD_OUT, Part.TEST) == sum(blocks(HELD_OUT, Part.TEST, fold=f) for f in (0, 1)) == 5


def test_a_recording_is_rescaled_to_the_planned_peak():
    one = Recording("own", {part: (np.full(700, 7.0),) for part in Part}, reference=14.0)
    made = episodes(one, Part.TUNE, runs=1, episodes=2, high=60, slo_ms=500)
    assert (made.rate == 30).all()
    assert (made.past_rate == 30).all()
    assert (made.slo_ms == 500).all()
    assert made.pattern.tolist() == ["own", "own"]
    with pytest.raises(WorkloadError, match="own: the test part has at most 700 s in a row"):
        episodes(one, Part.TEST, duration_seconds=900)


@pytest.mark.parametrize("name", NAMES)
def test_episodes_begin_with_replicas_that_carry_what_came_before_by_their_declared_capacity(name):
    made = episodes(name, Part.TEST, **SMALL)
    capacity = (made.initial * made.believed_rps).sum(1)
    assert ((capacity >= made.past_rate) | (made.initial == made.max_replicas).all(1)).all()


def test_one_pool_episodes_alternate_and_carry_what_their_pool_can():
    made = episodes("one_pool", Part.TEST, **SMALL)
    assert made.present.tolist() == [[True, False], [False, True]] * 4
    capacity = (made.max_replicas * made.rps * made.present).sum(axis=1)
    assert (made.rate.max(axis=1) < capacity).all()


def test_varied_episodes_differ_in_scale():
    for name in ("varied", "spike_varied"):
        peaks = episodes(name, Part.TEST, **SMALL | {"episodes": 20}).rate.max(axis=1)
        assert peaks.min() < 50
        assert peaks.max() > 110


def test_flat_episodes_do_not_change_and_some_are_idle():
    made = episodes("flat", Part.TEST, **SMALL | {"episodes": 20})
    assert (np.ptp(made.rate, axis=1) == 0).all()
    assert (made.rate.max(axis=1) == 0).mean() == pytest.approx(0.2)
    assert 50 < made.rate.max() <= 100


def test_envelope_services_differ_in_everything_and_take_no_other():
    made = episodes("envelope", Part.TEST, **SMALL)
    for name in ("slo_ms", "price_ratio", "rps", "cold_start_low"):
        assert len(np.unique(getattr(made, name), axis=0)) == 8
    with pytest.raises(WorkloadError, match="leave slo_ms at the defaults"):
        episodes("envelope", Part.TEST, slo_ms=500)


def test_an_unknown_workload_is_refused():
    with pytest.raises(WorkloadError, match="workload ramps: choose from ramp, spike"):
        episodes("ramps", Part.TEST)


@given(lengths=st.lists(st.integers(0, 500), min_size=1, max_size=4), duration=st.integers(1, 200))
def test_blocks_never_overlap_and_know_what_came_before(lengths, duration):
    ends = np.cumsum(lengths)
    pieces = tuple(np.arange(end - length, end, dtype=float) for end, length in zip(ends, lengths, strict=True))
    one = Recording("own", dict.fromkeys(Part, pieces), reference=1.0)
    count = blocks(one, Part.TEST, duration)
    assert count == sum(length // duration for length in lengths)
    if not count:
        with pytest.raises(WorkloadError, match=f"at most {max(lengths)} s in a row"):
            one.blocks(Part.TEST, duration)
        return
    found = one.blocks(Part.TEST, duration)
    seconds = np.concatenate([block.rate for block in found])
    assert len(np.unique(seconds)) == len(seconds) == count * duration
    for block in found:
        assert (np.diff(block.rate) == 1).all(), "never across two pieces"
        begins = block.rate[0] in [piece[0] for piece in pieces if len(piece)]
        assert begins or block.rate[0] - 31 <= block.past < block.rate[0]
