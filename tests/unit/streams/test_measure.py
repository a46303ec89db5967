"""What offsets say, against groups whose truth is known: the sawtooth of commits, and everything that may go wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_core.streams import Look, Measured, Memory, initial_memory, measure, with_partitions
from rlscaler_core.streams.measure import WINDOW_SECONDS

FAR = 1_000_000.0
"""Where offsets begin: a topic is rarely new."""


def look(time: float, end: Any, committed: Any, **columns: Any) -> Look:
    """One group; what is left out is as in a quiet group of one member that reads all partitions."""
    end = np.atleast_2d(np.asarray(end, float))
    n, p = end.shape
    given: dict[str, Any] = {
        "there": np.ones((n, p), bool),
        "renewed": np.zeros((n, p), bool),
        "start": np.full((n, p), 0.0),
        "owner": np.zeros((n, p), np.int32),
        "members": np.ones(n, np.int32),
        "ready": np.zeros(n, np.int32),
        "stable": np.ones(n, bool),
        "earliest": np.zeros(n, bool),
    } | columns
    return Look(
        time=np.full(n, float(time)),
        end=end,
        committed=np.broadcast_to(np.asarray(committed, float), end.shape).copy(),
        **{name: np.broadcast_to(value, value.shape) for name, value in given.items()},
    )


@dataclass
class Group:
    """A group whose every consumer processes `service` messages/s of what `rate` produces to each partition."""

    rate: list[float]
    consumers: int = 1
    service: float = np.inf
    commit_seconds: float = 5.0
    time: float = 0.0
    memory: Memory = field(init=False)
    end: np.ndarray = field(init=False)
    read: np.ndarray = field(init=False)
    committed: np.ndarray = field(init=False)
    history: list[tuple[float, np.ndarray]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.memory = initial_memory(1, len(self.rate))
        self.end = np.full(len(self.rate), FAR)
        self.read, self.committed = self.end.copy(), self.end.copy()

    @property
    def owner(self) -> np.ndarray:
        return np.arange(len(self.rate), dtype=np.int32) % self.consumers

    def step(self, seconds: float = 0.1) -> None:
        """Produce, process and commit for a moment."""
        before = self.time
        self.time = round(self.time + seconds, 6)
        self.end += np.array(self.rate) * seconds
        for one in range(self.consumers):
            mine = self.owner == one
            waits = (self.end - self.read)[mine]
            budget = min(self.service * seconds, waits.sum())
            self.read[mine] += waits * (budget / waits.sum() if waits.sum() > 0 else 0.0)
        if int(self.time / self.commit_seconds + 1e-9) > int(before / self.commit_seconds + 1e-9):
            self.committed = self.read.copy()
        self.history.append((self.time, self.end.copy()))

    def look(self, **columns: Any) -> Measured:
        columns = {"owner": self.owner[None], "members": np.array([self.consumers], np.int32)} | columns
        measured, self.memory = measure(self.memory, look(self.time, self.end, self.committed, **columns))
        return measured

    def play(self, seconds: float, **columns: Any) -> list[tuple[float, Measured]]:
        """Look once a second; the truth of the lag in seconds, and what was measured."""
        found = []
        for _ in range(round(seconds)):
            for _ in range(10):
                self.step()
            found.append((self.true_lag(), self.look(**columns)))
        return found

    def true_lag(self) -> float:
        """Seconds since the end passed what was read, of the partition that is furthest behind."""
        lags = []
        for p in range(len(self.rate)):
            passed = [at for at, end in self.history if end[p] <= self.read[p] + 1e-6]
            lags.append(self.time - passed[-1] if passed else self.time)
        return max(lags)


@pytest.mark.parametrize("commit_seconds", [1.0, 5.0])
@pytest.mark.parametrize("service", [250.0, 80.0])
def test_the_sawtooth_of_commits_is_not_taken_for_lag(commit_seconds: float, service: float) -> None:
    """Four partitions of 50/s for one consumer: at 250/s nothing waits, at 80/s the lag grows by .6 s each second."""
    group = Group([50.0] * 4, service=service, commit_seconds=commit_seconds)
    found = group.play(100)[30:]
    errors = [float(measured.worst_lag_seconds[0]) - truth for truth, measured in found]
    assert np.abs(np.median(errors)) < 0.3, errors
    assert np.quantile(np.abs(errors), 0.95) < 1.0, errors
    # What a subtraction of the committed offset would have said is far off.
    if commit_seconds == 5.0 and service == 250.0:
        assert max(truth for truth, _ in found) < 0.2
        assert max(float(measured.lag_messages[0]) for _, measured in found) < 100 < 0.5 * 200 * 5.0


def test_production_is_what_is_written() -> None:
    group = Group([10.0, 30.0, 0.0])
    measured = group.play(40)[-1][1]
    assert measured.production[0] == pytest.approx(40.0)
    assert measured.skew[0] == pytest.approx(30.0 / 20.0)
    assert measured.partitions[0] == 3


def test_production_follows_a_step_within_the_window_and_looks_may_be_further_apart_than_it() -> None:
    memory = initial_memory(1, 1)
    for time in range(0, 80, 2):
        measured, memory = measure(memory, look(time, [FAR + 60 * time + 540 * max(0, time - 40)], [FAR]))
        if time == 40 + WINDOW_SECONDS + 1:
            assert measured.production[0] == pytest.approx(600.0)
    memory = initial_memory(1, 1)
    for time in (0, 60, 120):
        measured, memory = measure(memory, look(time, [FAR + 60 * time], [FAR]))
    assert measured.production[0] == pytest.approx(60.0)


def test_the_first_look_says_nothing_of_rates() -> None:
    measured = Group([10.0]).look()
    assert np.isnan(measured.production[0])
    assert np.isnan(measured.service_rate[0])
    assert measured.lag_messages[0] == 0


def test_what_a_consumer_can_do_is_learned_where_it_has_all_that_it_can_do() -> None:
    idle = Group([20.0] * 4, consumers=2, service=100.0)
    assert np.isnan(idle.play(120)[-1][1].service_rate[0]), "40/s each is no measure of 100/s"
    busy = Group([80.0] * 4, consumers=2, service=100.0)
    assert busy.play(120)[-1][1].service_rate[0] == pytest.approx(100.0, rel=0.05)


def test_a_busy_consumer_beside_idle_ones_tells_what_one_can_do() -> None:
    group = Group([300.0, 5.0, 5.0], consumers=3, service=100.0, commit_seconds=1.0)
    measured = group.play(60)[-1][1]
    assert measured.service_rate[0] == pytest.approx(100.0, rel=0.05)
    assert measured.skew[0] > 2.5


def test_a_consumer_that_stopped_is_not_carried_on() -> None:
    group = Group([100.0], service=np.inf, commit_seconds=1.0)
    group.play(30)
    group.service = 0.0
    group.commit_seconds = 1e9
    last = group.play(30)[-1]
    assert last[1].lag_messages[0] == pytest.approx(3000.0, rel=0.05)
    assert last[1].lag_seconds[0] == pytest.approx(30.0, abs=1.5)


def test_a_partition_without_a_commit_follows_the_reset_policy() -> None:
    end, nothing = [[500.0]], np.nan
    measured, _ = measure(initial_memory(1, 1), look(0, end, nothing, earliest=np.array([True])))
    assert measured.lag_messages[0] == 500.0
    measured, memory = measure(initial_memory(1, 1), look(0, end, nothing))
    assert not measured.certain[0], "what it was given to read before the first look is not known"
    measured, memory = measure(memory, look(1, [[530.0]], nothing))
    assert measured.lag_messages[0] == 30.0
    assert not measured.certain[0]
    # Nothing comes for a while: a consumer that begins with the next message has nothing to read.
    _, memory = measure(initial_memory(1, 1), look(0, end, nothing))
    for second in range(1, 70):
        measured, memory = measure(memory, look(second, end, nothing))
    assert measured.certain[0]
    assert measured.lag_messages[0] == 0.0


def test_a_group_that_nobody_has_seen_is_unknown() -> None:
    nobody = {"owner": np.full((1, 2), -1, np.int32), "members": np.zeros(1, np.int32)}
    for earliest in (True, False):
        measured, memory = measure(
            initial_memory(1, 2), look(0, [[5.0, 5.0]], np.nan, earliest=np.array([earliest]), **nobody)
        )
        measured, _ = measure(memory, look(1, [[9.0, 9.0]], np.nan, earliest=np.array([earliest]), **nobody))
        assert measured.production[0] == 8.0
        assert np.isnan(measured.lag_messages[0])
        assert np.isnan(measured.lag_seconds[0])


def test_messages_that_retention_took_do_not_wait() -> None:
    measured, _ = measure(initial_memory(1, 1), look(0, [[1000.0]], 10.0, start=np.array([[900.0]])))
    assert measured.lag_messages[0] == 100.0


def test_a_topic_that_was_made_again_is_another_one() -> None:
    group = Group([100.0], commit_seconds=1.0)
    group.play(20)
    group.end[:], group.read[:], group.committed[:] = 7.0, 7.0, 3.0
    measured = group.look()
    assert np.isnan(measured.production[0]), "the end fell: -1,000,000 messages/s were not written"
    assert np.isnan(group.memory.rate[0, 0])
    group.play(10)
    assert group.look().production[0] == pytest.approx(100.0, rel=0.1)


def test_a_topic_that_was_made_again_and_has_grown_beyond_is_another_one_too() -> None:
    group = Group([100.0], commit_seconds=1.0)
    group.play(20)
    group.time += 1
    group.end += 1e9
    measured = group.look(renewed=np.array([[True]]))
    assert np.isnan(measured.production[0])


def test_a_group_that_was_set_back_is_unknown_for_a_look_and_then_behind() -> None:
    group = Group([100.0], commit_seconds=1.0)
    group.play(60)
    group.service = 0.0
    group.read[:] -= 5000.0
    group.committed[:] = group.read
    group.time += 1.0
    measured = group.look()
    assert np.isnan(measured.lag_messages[0])
    assert not measured.certain[0]
    group.time += 1.0
    measured = group.look()
    assert measured.lag_messages[0] == pytest.approx(5000.0, abs=10)
    assert measured.lag_seconds[0] == pytest.approx(52.0, abs=2)


def test_a_look_without_the_end_of_a_partition_is_none() -> None:
    group = Group([100.0, 100.0])
    group.play(20)
    before = group.memory.copy()
    measured, after = measure(group.memory, look(21, [[FAR + 2100.0, np.nan]], group.committed[None]))
    assert np.isnan(measured.production[0])
    assert np.isnan(measured.lag_messages[0])
    assert not measured.certain[0]
    for name in Memory.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


def test_partitions_that_a_topic_grows_by_blind_nobody() -> None:
    group = Group([100.0], commit_seconds=1.0)
    group.play(30)
    memory = with_partitions(group.memory, 3)
    end = [[FAR + 3100.0, 40.0, 0.0]]
    committed = [[FAR + 3090.0, np.nan, np.nan]]
    measured, _ = measure(memory, look(31, end, committed, owner=np.zeros((1, 3), np.int32)))
    assert measured.production[0] == pytest.approx(140.0, abs=2)
    assert measured.partitions[0] == 3


def test_traffic_is_waited_for_before_partitions_count_as_unused() -> None:
    group = Group([10.0, 0.0, 0.0], commit_seconds=1.0)
    assert group.play(30)[-1][1].with_traffic[0] == 3
    group.history.clear()
    for _ in range(600):
        group.time += 1
        group.end += np.array(group.rate)
        group.read, group.committed = group.end.copy(), group.end.copy()
        measured = group.look()
    assert measured.with_traffic[0] == 1


def test_a_poisoned_partition_is_told_from_a_slow_group() -> None:
    group = Group([50.0] * 3, consumers=3, service=100.0, commit_seconds=1.0)
    group.play(30)
    poisoned = group.read[1]
    for _ in range(60):
        for _ in range(10):
            group.step()
        group.read[1] = poisoned
        group.committed[1] = poisoned
        measured = group.look()
    assert measured.stuck[0] == 1
    assert measured.lag_messages[0] < 100, "no number of consumers helps that partition"
    assert measured.lag_seconds[0] < 2
    assert measured.worst_lag_seconds[0] > 50
    slow = Group([50.0] * 3, consumers=3, service=30.0, commit_seconds=1.0)
    assert slow.play(90)[-1][1].stuck[0] == 0


def test_a_group_comes_to_rest_when_newcomers_commit_and_is_not_waited_for_for_ever() -> None:
    group = Group([50.0] * 4, consumers=2, service=60.0, commit_seconds=2.0)
    assert not group.play(30)[-1][1].settling[0]
    assert group.look(stable=np.array([False])).settling[0]
    group.consumers = 4
    group.time += 0.5
    assert group.look().settling[0], "the newcomers have not committed"
    assert not group.play(6)[-1][1].settling[0]
    storm = []
    for second in range(90):
        owner = (np.arange(4, dtype=np.int32) + second)[None] % 4
        storm.append(bool(group.play(1, stable=np.array([False]), owner=owner)[-1][1].settling[0]))
    assert all(storm[:60])
    assert not any(storm[65:])


def test_groups_beside_each_other_are_measured_as_alone() -> None:
    small, large = Group([10.0, 20.0]), Group([100.0] * 4, consumers=2, service=150.0)
    memory = initial_memory(2, 4)
    for _ in range(60):
        for group in (small, large):
            for _ in range(10):
                group.step()
            alone = group.look()
        wide = [np.concatenate([g.end, np.full(4 - len(g.end), np.nan)]) for g in (small, large)]
        done = [np.concatenate([g.committed, np.full(4 - len(g.end), np.nan)]) for g in (small, large)]
        owner = np.array([[0, 0, -1, -1], [0, 1, 0, 1]], np.int32)
        both, memory = measure(
            memory,
            look(small.time, wide, done, there=np.array([[1, 1, 0, 0], [1, 1, 1, 1]], bool), owner=owner,
                 members=np.array([1, 2], np.int32)),
        )  # fmt: skip
    for name in Measured.__dataclass_fields__:
        np.testing.assert_allclose(getattr(both, name)[1], getattr(alone, name)[0], err_msg=name)


OFFSET = st.one_of(st.just(np.nan), st.floats(0, 1e15))


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.lists(OFFSET, min_size=3, max_size=3),
            st.lists(OFFSET, min_size=3, max_size=3),
            st.lists(OFFSET, min_size=3, max_size=3),
            st.lists(st.booleans(), min_size=3, max_size=3),
            st.lists(st.integers(-1, 5), min_size=3, max_size=3),
            st.booleans(),
            st.booleans(),
            st.floats(0, 100),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_whatever_a_broker_says_nothing_is_negative_and_nothing_breaks(looks: list[Any]) -> None:
    memory, now = initial_memory(1, 3), 0.0
    for end, start, committed, there, owner, stable, earliest, later in looks:
        now += later
        measured, memory = measure(
            memory,
            look(now, [end], [committed], start=np.array([start]), there=np.array([there]),
                 owner=np.array([owner], np.int32), stable=np.array([stable]), earliest=np.array([earliest])),
        )  # fmt: skip
        for name in ("production", "lag_messages", "lag_seconds", "worst_lag_seconds", "service_rate", "skew"):
            value = float(getattr(measured, name)[0])
            assert np.isnan(value) or value >= 0, (name, value)
        assert 0 <= measured.with_traffic[0] <= measured.partitions[0]
        if np.isnan(np.where(there, end, 0)).any():
            assert np.isnan(measured.production[0])
            assert not measured.certain[0]
