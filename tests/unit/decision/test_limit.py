"""A network that takes too long when it decides is stopped, and not asked again for a while."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from rlscaler_core.decision import limit as limits
from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.limit import TimeLimit
from tests.harness import hostile_models as hostile

ROWS = np.ones((250, hostile.WIDTH), np.float32)


def load(graph: bytes, limit: TimeLimit | None) -> Actor:
    return Actor.load(graph, hostile.manifest(graph), limit)


@pytest.fixture(scope="module")
def slow() -> bytes:
    return bytes(hostile.slow().SerializeToString())


def test_a_run_that_takes_too_long_is_stopped_and_the_network_is_left_alone(
    slow: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = TimeLimit(60.0)
    actor = load(slow, limit)
    began = time.monotonic()
    assert np.isfinite(actor.probabilities(ROWS)).all()
    whole = time.monotonic() - began
    limit.seconds = whole / 20
    with pytest.raises(ModelError, match="was stopped after"):
        actor.probabilities(ROWS)
    with pytest.raises(ModelError, match="is not asked for 60 s"):
        actor.probabilities(ROWS)
    limit.seconds = 60.0
    monkeypatch.setattr(limits.time, "monotonic", lambda now=time.monotonic: now() + limits.PAUSE_SECONDS)
    assert np.isfinite(actor.probabilities(ROWS)).all(), "a machine may have been busy only for a while"


def test_one_thread_watches_over_all_and_no_other_network_is_stopped(slow: bytes) -> None:
    graph = bytes(hostile.plain().SerializeToString())
    honest, bad = load(graph, TimeLimit(60.0)), TimeLimit(60.0)
    slow_actor = load(slow, bad)
    bad.seconds = 0.001
    refusals: list[str] = []

    def run_the_slow_one() -> None:
        with pytest.raises(ModelError) as caught:
            slow_actor.probabilities(ROWS)
        refusals.append(str(caught.value))

    other = threading.Thread(target=run_the_slow_one)
    other.start()
    while other.is_alive():
        assert np.isfinite(honest.probabilities(ROWS)).all()
    assert "stopped" in refusals[0]
    assert [thread.name for thread in threading.enumerate()].count("model-time-limit") == 1
    assert not limits._watchdog._deadlines


def test_without_a_limit_no_network_is_stopped(slow: bytes) -> None:
    assert np.isfinite(load(slow, None).probabilities(ROWS)).all()
