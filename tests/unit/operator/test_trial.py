"""A network from outside is tried out where it does no harm: what is slow, enormous or wrong is refused."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

import pytest
from onnx import ModelProto

from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.models import load_bundled
from rlscaler_operator.cluster import trial
from rlscaler_operator.loop import tick
from tests.harness import hostile_models as hostile


def tried(make: Callable[[], ModelProto]) -> None:
    try_out(bytes(make().SerializeToString()))


def try_out(graph: bytes) -> None:
    trial.try_out(hostile.manifest(graph), graph, "ConfigMap shop/chat")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (hostile.loop, "operator Loop"),
        (hostile.many_nodes, "100,002 nodes"),
        (hostile.fill, "takes more than 128 MiB"),
        (hostile.expand, "takes more than 128 MiB"),
        (hostile.doubling, "takes more than 128 MiB"),
        (hostile.outer, "takes more than 128 MiB"),
        (hostile.slow, "ms|processor time"),
        (hostile.not_a_number, "NaN"),
        (hostile.one_row_for_all, "rows"),
        (hostile.mixed_rows, "in a batch"),
        (hostile.wrong_width, "has to map"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_hostile_is_refused_within_bounds(make: Callable[[], ModelProto], says: str) -> None:
    graph = bytes(make().SerializeToString())
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(ModelError, match=says) as caught:
        try_out(graph)
    assert "ConfigMap shop/chat" in str(caught.value)
    assert time.monotonic() - began < trial.WALL_SECONDS + 5
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 32 * 1024, "KiB, for the request"


@pytest.mark.parametrize("make", hostile.HARMLESS.values(), ids=hostile.HARMLESS)
def test_an_honest_network_passes(make: Callable[[], ModelProto]) -> None:
    tried(make)


def test_the_bundled_network_passes() -> None:
    from importlib.resources import files

    graph = (files("rlscaler_core.models") / "ppo.onnx").read_bytes()
    trial.try_out(load_bundled("ppo").manifest, graph, "the bundled network")


def test_a_trial_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "WALL_SECONDS", 0.05)
    with pytest.raises(ModelError, match=r"longer than 0\.05 s"):
        tried(hostile.plain)


def test_as_many_rows_are_measured_as_are_decided_at_once() -> None:
    assert trial.ROWS >= tick.AT_ONCE
