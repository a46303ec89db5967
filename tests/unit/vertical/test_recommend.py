"""Recommending the size of pods: within the range, above what is used, and calm."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_core.vertical.recommend import (
    BINS,
    CPU,
    EDGES,
    GROWTH,
    MARGIN,
    MEMORY,
    PEAK_SECONDS,
    SETTLE_SECONDS,
    Ranges,
    Usage,
    least_memory,
    nothing_known,
    recommend,
)

GI = float(1 << 30)
STEP = 30.0


def ranges(least=(0.25, 0.25 * GI), most=(4.0, 8 * GI), step=(0.25, 0.25 * GI), n=1):
    return Ranges(*(np.tile(np.asarray(one, float), (n, 1)) for one in (least, most, step)))


def played(used, memory=None, bounds=None, begin=0.0, step=STEP):
    """Take in samples (T, 2), one every `step` seconds; gives the sizes (T, 2) and the memory at the end."""
    bounds = bounds or ranges()
    memory = memory or nothing_known(1)
    sizes = []
    for number, one in enumerate(np.asarray(used, float)):
        memory = recommend(bounds, memory, Usage(np.array([begin + step * number]), one[None]))
        sizes.append(memory.size[0])
    return np.array(sizes), memory


def constant(cpu, memory, samples=40):
    return np.tile([cpu, memory], (samples, 1))


def test_nothing_is_recommended_until_enough_was_seen():
    sizes, _ = played(constant(1.0, GI, 30))
    assert np.isnan(sizes[:15]).all()
    assert np.isfinite(sizes[-1]).all()


def test_a_constant_use_gets_its_margin_and_no_more_than_a_bin_and_a_step_beyond_it():
    sizes, _ = played(constant(1.0, 2 * GI))
    for resource, used, step in ((CPU, 1.0, 0.25), (MEMORY, 2 * GI, 0.25 * GI)):
        size = sizes[-1, resource]
        assert size >= MARGIN[resource] * used
        assert size <= MARGIN[resource] * used * GROWTH + step
        assert size % step == 0


def test_it_is_raised_at_once_and_lowered_after_a_while():
    _, memory = played(constant(0.5, GI, 100))
    sizes, memory = played(constant(3.0, 6 * GI, 30), memory, begin=3000.0)
    assert sizes[0, MEMORY] >= 6 * GI, "memory is raised by the first sample"
    assert sizes[-1, CPU] >= 3.0, "CPU by the samples that are a twentieth of those that count"
    high = sizes[-1]
    day = int(3 * 24 * 3600 / 300)
    sizes, _ = played(constant(0.5, GI, day), memory, begin=4000.0, step=300.0)
    assert (sizes[: int(SETTLE_SECONDS / 300), MEMORY] == high[MEMORY]).all()
    assert sizes[-1, MEMORY] < 2 * GI
    assert sizes[-1, CPU] < 1.0


def test_a_load_of_day_and_night_keeps_the_size_of_the_day():
    hours = np.arange(0, 4 * 24, 1 / 12)
    cpu = np.where((hours % 24) < 8, 2.0, 0.3)
    sizes, _ = played(np.stack([cpu, np.full_like(cpu, GI)], 1), step=300.0)
    assert (sizes[-24 * 12 :, CPU] >= 2.0)[:96].all(), "when the day begins the size is there"
    assert len(np.unique(sizes[24 * 12 :, MEMORY])) == 1


def test_what_is_not_known_keeps_the_size():
    _, memory = played(constant(1.0, GI))
    sizes, after = played(np.tile([np.nan, np.nan], (5000, 1)), memory, begin=2000.0)
    assert (sizes == memory.size).all()
    np.testing.assert_array_equal(after.weight, memory.weight)
    np.testing.assert_array_equal(after.seen, memory.seen)


def test_a_narrower_range_holds_at_once():
    _, memory = played(constant(3.0, 6 * GI))
    sizes, _ = played([[np.nan, np.nan]], memory, ranges(most=(2.0, 4 * GI)), begin=2000.0)
    assert sizes[0].tolist() == [2.0, 4 * GI]


def test_a_resource_without_a_range_is_not_sized():
    bounds = ranges(least=(np.nan, GI), most=(np.nan, 4 * GI), step=(np.nan, GI))
    sizes, _ = played(constant(1.0, GI), bounds=bounds)
    assert np.isnan(sizes[:, CPU]).all()
    assert sizes[-1, MEMORY] == 2 * GI


def test_memory_is_not_to_be_lowered_below_its_peak_until_that_is_old():
    bounds, now = ranges(), np.array([5000.0])
    assert np.isnan(least_memory(bounds, nothing_known(1), now)).all()
    _, memory = played([*constant(1.0, GI, 60), [1.0, 5 * GI], *constant(1.0, GI, 60)])
    assert least_memory(bounds, memory, now)[0] >= 5 * GI * MARGIN[MEMORY]
    assert least_memory(bounds, memory, now + PEAK_SECONDS - 3600)[0] >= 5 * GI * MARGIN[MEMORY]
    _, memory = played(constant(1.0, GI, 400), memory, begin=5000.0, step=PEAK_SECONDS / 300)
    assert least_memory(bounds, memory, now + PEAK_SECONDS * 1.3)[0] < 2 * GI


def test_memory_of_which_more_was_used_than_is_counted_is_not_to_be_lowered():
    bounds, now = ranges(most=(4.0, GI)), np.array([5000.0])
    _, memory = played(constant(1.0, 1.2 * GI), bounds=bounds)
    assert least_memory(bounds, memory, now)[0] >= 1.2 * GI * MARGIN[MEMORY]
    _, memory = played(constant(1.0, 3 * GI), bounds=bounds)
    assert np.isnan(least_memory(bounds, memory, now)).all()


def test_what_was_seen_last_is_not_forgotten_while_nothing_is_known():
    bounds = ranges()
    _, memory = played(constant(1.0, 5 * GI))
    assert least_memory(bounds, memory, np.array([1e9]))[0] >= 5 * GI


def test_what_is_above_the_range_is_seen_and_held_at_its_end():
    sizes, _ = played(constant(40.0, 100 * GI))
    assert sizes[-1].tolist() == [4.0, 8 * GI]
    assert EDGES[-1] > 1.0 / MARGIN.min()


samples = st.lists(
    st.tuples(
        st.one_of(st.just(float("nan")), st.floats(0, 8)),
        st.one_of(st.just(float("nan")), st.floats(0, 16)),
        st.floats(1, 20_000),
    ),
    min_size=1,
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(samples=samples, least=st.floats(0.1, 1), width=st.floats(1.0, 8), step=st.floats(0.05, 0.5))
def test_never_outside_of_the_range_never_below_the_last_peak_never_lost(samples, least, width, step):
    bounds = ranges(least=(least, least * GI), most=(least * width, least * width * GI), step=(step, step * GI))
    memory, now, before = nothing_known(1), 0.0, np.array([np.nan, np.nan])
    for cpu, mem, passed in samples:
        now += passed
        memory = recommend(bounds, memory, Usage(np.array([now]), np.array([[cpu, mem * GI]])))
        size = memory.size[0]
        there = np.isfinite(size)
        assert (there | ~np.isfinite(before)).all(), "a size was lost"
        assert (size[there] >= bounds.least[0][there] - 1e-9).all()
        assert (size[there] <= bounds.most[0][there] + 1e-9).all()
        if there[MEMORY] and np.isfinite(mem):
            assert size[MEMORY] >= min(mem * GI * MARGIN[MEMORY], bounds.most[0, MEMORY]) * (1 - 1e-9)
        assert memory.weight.shape == memory.seen.shape == (1, BINS)
        before = size


def test_pools_side_by_side_are_what_each_is_alone():
    rng = np.random.default_rng(0)
    used = rng.random((60, 3, 2)) * [4.0, 8 * GI]
    bounds, together = ranges(n=3), nothing_known(3)
    alone = [nothing_known(1) for _ in range(3)]
    for number, row in enumerate(used):
        time = np.full(3, STEP * number)
        together = recommend(bounds, together, Usage(time, row))
        alone = [recommend(ranges(), one, Usage(time[:1], row[[i]])) for i, one in enumerate(alone)]
    for i, one in enumerate(alone):
        np.testing.assert_array_equal(together.size[i], one.size[0])
        np.testing.assert_array_equal(together.weight[i], one.weight[0])
