"""A scale-up after which a group processes less: when it is seen, undone, and tried again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.throughput import HOLD_SECONDS, MORE, PHASE, Phase
from rlscaler_core.decision.types import Flag, State

RESTS_AFTER = 20.0
"""Seconds from a change until the group is at rest."""


@dataclass
class Group:
    """A group of 12 partitions whose consumers do as they are told, and whose lag never ends; a look each 5 s."""

    capacity: dict[int, float]
    """Messages/s of all consumers together, by their number; the nearest number below counts."""

    columns: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    consumers: int = 4
    lag: float = 3500.0
    time: float = 0.0
    changed: float = -100.0
    ready: int = 4
    flags: int = 0
    state: State = field(default_factory=lambda: initial_state(1, 1))

    def processed(self) -> float:
        return self.capacity[max(number for number in self.capacity if number <= self.ready)]

    def look(self) -> None:
        params = make_params(
            1,
            **{
                "present": (False, True), "stream": True, "requests_per_second": (np.nan, 100.0), "max_replicas": 12,
                "slo_ms": 10_000.0, "ceiling": False, **self.params,
            },
        )  # fmt: skip
        since = self.time - self.changed
        self.ready = self.consumers if since >= 10.0 else min(self.ready, self.consumers)
        columns = {"processed": self.processed(), "lag_messages": self.lag, "settling": 10 <= since < RESTS_AFTER}
        samples = make_samples(
            1, time=self.time, arrival_rate=300.0, p95_ms=10.0, partitions=12,
            spec_replicas=(0, self.consumers), ready_replicas=(0, self.ready), **columns | self.columns,
        )  # fmt: skip
        state = sense(params, self.state, samples)
        kind: Any = "action" if self.time % 15 == 0 else "floor"
        decision, _, self.state = decide(params, state, samples, Rule(), kind=kind)
        self.flags |= int(decision.flags[0])
        if int(decision.desired[0, 1]) != self.consumers:
            self.consumers, self.changed = int(decision.desired[0, 1]), self.time
        self.time += 5.0

    def play(self, seconds: float) -> list[int]:
        """The numbers of consumers that were seen."""
        found = []
        for _ in range(int(seconds / 5)):
            self.look()
            found.append(self.consumers)
        return found

    @property
    def phase(self) -> float:
        return float(self.state.trial[0, PHASE])


def test_a_scale_up_after_which_less_is_processed_is_undone_and_not_tried_again_at_once() -> None:
    group = Group({4: 250.0, 6: 150.0})
    assert set(group.play(30)) == {6}
    assert set(group.play(30)) == {6}, "the newcomers have just come to rest"
    assert group.play(60)[-1] == 4
    assert group.flags & Flag.THROUGHPUT
    assert set(group.play(HOLD_SECONDS - 30)) == {4}, "though the lag asks for more"
    assert group.phase == Phase.HELD
    assert max(group.play(120)) == 6, "later it is tried again"


def test_without_the_guard_they_stay() -> None:
    """What the test before sees is the guard's doing: a group of which nothing says what it processes is left alone."""
    group = Group({4: 250.0, 6: 150.0}, columns={"processed": np.nan})
    assert set(group.play(900)) == {6}
    assert np.isnan(group.phase)


@pytest.mark.parametrize("after", [230.0, 250.0, 375.0])
def test_more_consumers_that_process_as_much_stay(after: float) -> None:
    group = Group({4: 250.0, 6: after})
    assert set(group.play(300)) == {6}
    assert not group.flags & Flag.THROUGHPUT


def test_where_fewer_process_no_more_they_were_not_the_cause() -> None:
    """The messages grew heavier while consumers were added: they may be added again, and are not judged for a while."""
    group = Group({4: 250.0, 6: 150.0})
    group.play(80)
    group.capacity = {4: 150.0, 6: 220.0}
    seen = group.play(150)
    assert 4 in seen
    assert seen[-1] == 6
    assert group.phase == Phase.EXCUSED
    assert set(group.play(300)) == {6}


def test_what_a_rebalance_costs_is_weighed() -> None:
    """Nothing was processed for a minute when the group changed: 10 messages/s more do not bring that back."""
    cheap, dear = Group({4: 100.0, 6: 85.0}), Group({4: 100.0, 6: 85.0})
    for group in (cheap, dear):
        group.play(15)
        if group is dear:
            group.columns = {"settling": True, "processed": 0.0}
            group.play(60)
            group.columns = {}
        group.play(150)
    assert (cheap.consumers, dear.consumers) == (4, 6)


@pytest.mark.parametrize(
    ("columns", "params"),
    [
        ({"paused_scale_down": True}, {}),
        ({}, {"select_policy": (0, 2), "has_behavior": True}),
        ({"settling": True}, {}),
        ({"lag_messages": np.nan}, {}),
    ],
    ids=["paused", "scaleDown disabled", "no rest", "lag unknown"],
)
def test_no_consumer_goes_where_none_may(columns: dict[str, Any], params: dict[str, Any]) -> None:
    group = Group({4: 250.0, 6: 150.0}, params=params)
    group.play(20)
    group.columns = columns
    assert set(group.play(300)) == {6}


def test_the_number_that_processed_most_is_gone_back_to() -> None:
    """Four, six and twelve in steps, of which six is the best and twelve the worst."""
    group = Group({4: 200.0, 6: 260.0, 12: 120.0})
    group.play(50)
    assert (group.consumers, group.phase) == (6, Phase.RAISED), "six are not judged yet"
    group.lag = 30_000.0
    group.play(20)
    assert group.consumers == 12
    assert float(group.state.trial[0, MORE]) == 12
    assert group.play(100)[-1] == 6


def test_a_hand_that_sets_other_numbers_ends_the_trial() -> None:
    group = Group({4: 250.0, 6: 150.0, 8: 150.0})
    group.play(40)
    assert group.phase == Phase.RAISED
    group.consumers = 8
    group.play(5)
    assert np.isnan(group.phase)
