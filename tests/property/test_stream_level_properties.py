"""Simulated consumer groups: nothing is lost, nobody idles beside a crowded one, and lag has a physical floor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.simulation.ledger import LedgerError
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.streams import episode, ledger
from rlscaler_rl.simulation.streams.groups import groups
from rlscaler_rl.simulation.streams.level import StreamLevel
from rlscaler_rl.simulation.streams.protocols import NAMES, NOBODY, in_ranges, sticky
from rlscaler_rl.simulation.streams.state import settled

MOST = 8
CHANGES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, MOST)), max_size=6)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 14), CHANGES, st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 99))
@example("range", 4, [(1, 5)], 0.0, 6)  # a newcomer is ready, joins and gets a partition within one step
def test_whatever_is_scaled_nothing_is_lost_and_all_partitions_are_shared_evenly(
    protocol: str, partitions: int, changes: list[tuple[int, int]], unclean: float, seed: int
) -> None:
    made = groups(
        np.full((2, 30), 150.0), [seed, seed + 1], skew=0.5, protocol=protocol, partitions=partitions, initial=2,
        max_replicas=MOST, unclean=unclean, session_seconds=6.0, cold_start_low=1.0, cold_start_high=3.0,
    )  # fmt: skip
    level = StreamLevel(made)

    def advance(steps: int) -> None:
        for _ in range(steps):
            level.advance()
            ledger.check(ledger.read(level.state), made, min(level.step, made.steps))
            assert (level.state.committed <= level.state.reached + 1e-6).all()

    for steps, replicas in changes:
        advance(steps)
        level.scale(np.full(2, replicas))
    advance(200)
    assert settled(made, level.state).all()
    for owner, member in zip(level.state.owner, level.state.member, strict=True):
        assert set(owner.tolist()) <= set(np.flatnonzero(member).tolist())
        counts = np.bincount(owner, minlength=len(member))[member]
        assert counts.max() <= -(-partitions // member.sum())
        assert counts.min() >= partitions // member.sum()


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=20), st.sets(st.integers(0, 6), min_size=1))
def test_sticky_shares_evenly_and_moves_no_more_than_it_must(owner: list[int], members: set[int]) -> None:
    before = np.array(owner, np.int32)
    after = sticky(before, sorted(members))
    fewest, more = divmod(len(owner), len(members))
    counts = sorted(int((after == member).sum()) for member in members)
    assert counts == sorted(np.bincount(in_ranges(len(owner), range(len(members))), minlength=len(members)).tolist())
    kept = int(((before == after) & (before != NOBODY)).sum())
    has = sorted((int((before == member).sum()) for member in members), reverse=True)
    assert kept == sum(min(count, fewest + (place < more)) for place, count in enumerate(has))


@pytest.mark.parametrize("protocol", NAMES)
def test_more_consumers_than_partitions_add_nothing(protocol: str) -> None:
    def left(replicas: int) -> float:
        level = StreamLevel(
            groups(np.full((1, 60), 900.0), [1], protocol=protocol, partitions=4, initial=replicas, max_replicas=9)
        )
        for _ in range(120):
            level.advance()
        return float(ledger.read(level.state).waiting[0])

    assert left(4) == left(9) < left(3)


@pytest.mark.parametrize("protocol", NAMES)
def test_the_operators_decision_keeps_a_spike_within_reach_and_the_autoscaler_on_cpu_does_not(protocol: str) -> None:
    rate = np.concatenate([np.full(60, 60.0), np.full(80, 600.0), np.full(60, 60.0)])
    made = groups(np.tile(rate, (3, 1)), range(3), protocol=protocol)
    rule, hpa = (episode.run(made, one).result for one in (load_bundled("rule"), Hpa()))
    assert (rule.p95_seconds < hpa.p95_seconds).all()
    assert (rule.consumer_seconds >= episode.least_consumer_seconds(made)).all()


def test_messages_are_read_again_only_after_a_member_that_went_without_a_word() -> None:
    for unclean in (0.0, 1.0):
        made = groups(np.full((1, 60), 150.0), [3], initial=3, unclean=unclean, session_seconds=6.0)
        level = StreamLevel(made)
        for step in range(120):
            if step == 41:
                level.scale(np.array([2]))
            level.advance()
        assert (ledger.read(level.state).repeated[0] > 0) == (unclean > 0)


def test_a_ledger_that_lost_messages_is_refused_and_so_is_a_wrong_column() -> None:
    made = groups(np.full((1, 10), 100.0), [0])
    level = StreamLevel(made)
    level.advance()
    level.state.distinct -= 1
    with pytest.raises(LedgerError, match="processed distinct"):
        ledger.check(ledger.read(level.state), made, 1)
    with pytest.raises(ScenarioError, match="protocol = eager: choose from range"):
        groups(np.full((1, 10), 100.0), [0], protocol="eager")


def joined_after(protocol: str, batch: float) -> float:
    """Mean seconds from a start to a newcomer's first partition, where two consumers have more than they can do."""
    made = groups(
        np.full((20, 60), 300.0), range(20), protocol=protocol, batch=batch, initial=2, cold_start_low=0.0,
        cold_start_high=0.0,
    )  # fmt: skip
    level = StreamLevel(made)
    begun = np.full(20, np.nan)
    for step in range(120):
        if step == 40:
            level.scale(np.full(20, 3))
        level.advance()
        begun = np.where(np.isnan(begun) & (level.state.owner == 2).any(axis=1), level.state.time - 20.0, begun)
    return float(begun.mean())


def test_eager_members_end_their_batch_before_a_newcomer_reads_and_cooperative_ones_keep_it_waiting_no_longer() -> None:
    short, long = ({name: joined_after(name, batch) for name in NAMES} for batch in (10.0, 400.0))
    assert long["range"] > short["range"] + 1.0, "of batches of 4 s half is left in the mean"
    assert abs(long["cooperative-sticky"] - short["cooperative-sticky"]) < 1.0


def test_a_batch_that_is_not_full_is_short() -> None:
    """Where consumers have little to do, a change waits for no more than what has come."""
    made = groups(np.full((20, 40), 60.0), range(20), protocol="range", batch=400.0, initial=2, cold_start_high=5.0)
    level = StreamLevel(made)
    for step in range(80):
        if step == 40:
            level.scale(np.full(20, 3))
        level.advance()
    stops = level.state.stop_until - level.state.stop_from
    assert np.nanmax(np.where(np.isfinite(stops), stops, np.nan)) < 1.0
