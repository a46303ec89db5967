"""Simulated consumers that slow one another down, as those of a shared database, and the scale-up that is undone."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.decide import Decided, decide
from rlscaler_core.decision.guards import without
from rlscaler_core.decision.types import Flag
from rlscaler_core.models import load_bundled
from rlscaler_rl.simulation.streams import episode
from rlscaler_rl.simulation.streams.episode import StreamRun
from rlscaler_rl.simulation.streams.groups import groups
from rlscaler_rl.simulation.streams.protocols import NAMES

SECONDS = 360


def played(monkeypatch: pytest.MonkeyPatch, protocol: str, coherency: float, **changes: Any) -> tuple[StreamRun, int]:
    """Play a step of load with the rule; also give the flags that its decisions had."""
    flags = 0

    def noted(*arguments: Any, **kind: Any) -> Decided:
        nonlocal flags
        decided = decide(*arguments, **kind, **changes)
        flags |= int(decided.decision.flags[0])
        return decided

    monkeypatch.setattr(episode, "decide", noted)
    rate = np.where(np.arange(SECONDS) < 40, 220.0, 300.0)
    made = groups(rate[None], [0], protocol=protocol, coherency=coherency, initial=4)
    return episode.run(made, load_bundled("rule"), interval_seconds=15.0), flags


@pytest.mark.slow
@pytest.mark.parametrize("protocol", NAMES)
def test_a_scale_up_that_lowers_the_throughput_is_undone(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    """Four consumers process 250 messages a second, six 240, and twelve 158."""
    slowed = partial(played, monkeypatch, protocol, 0.05)
    found, flags = slowed()
    unguarded, _ = slowed(guards=without("throughput"))
    assert flags & Flag.THROUGHPUT
    assert found.result.left[0] < 0.8 * unguarded.result.left[0]
    assert found.result.consumer_seconds[0] < 0.8 * unguarded.result.consumer_seconds[0]


@pytest.mark.parametrize("protocol", NAMES)
def test_consumers_that_share_nothing_are_left_alone(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    _, flags = played(monkeypatch, protocol, 0.0)
    assert not flags & Flag.THROUGHPUT


def test_beyond_some_number_all_together_process_less() -> None:
    made = groups(np.full((1, 1), 1.0), [0], coherency=0.05)
    together = [number * float(made.rate_beside(np.array([number], np.int32))[0]) for number in (1, 4, 6, 12)]
    assert together == pytest.approx([100.0, 250.0, 240.0, 157.9], abs=0.1)
