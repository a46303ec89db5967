"""Graphs of strangers: refused before ONNX Runtime sees them, with what is wrong; unusual but honest ones are taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.exceptions import ModelError
from tests.harness import hostile_models as hostile

REFUSED: list[tuple[Callable[[], ModelProto], str]] = [
    (hostile.loop, "operator Loop"),
    (hostile.branch, "operator If"),
    (hostile.scan, "operator Scan"),
    (hostile.tile, "operator Tile"),
    (hostile.hidden_subgraph, "subgraph"),
    (hostile.shape_of_values, "values of the observation"),
    (hostile.used_before_made, "before"),
    (hostile.twice_defined, "twice"),
    (hostile.many_nodes, "nodes"),
    (hostile.many_numbers, "numbers"),
    (hostile.negative_dimension, "dimension"),
    (hostile.function, "functions"),
    (hostile.custom_domain, "com.microsoft"),
    (hostile.sparse, "sparse"),
]


def content(make: Callable[[], ModelProto]) -> bytes:
    return bytes(make().SerializeToString())


@pytest.mark.parametrize(("make", "says"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_graph_that_is_no_policy_network_is_refused(make: Callable[[], ModelProto], says: str) -> None:
    graph = content(make)
    with pytest.raises(ModelError, match=says) as caught:
        Actor.load(graph, hostile.manifest(graph, "chat-policy"))
    assert "chat-policy" in str(caught.value), "it names the object"


def test_no_file_is_read_for_a_graph(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(np.zeros(13, np.float32).tobytes())
    graph = bytes(hostile.external_data(secret).SerializeToString())
    with pytest.raises(ModelError, match="external data"):
        Actor.load(graph, hostile.manifest(graph))


def test_a_file_that_is_too_large_is_refused_before_it_is_parsed() -> None:
    graph = bytes(20 * 2**20)
    with pytest.raises(ModelError, match="bytes"):
        Actor.load(graph, hostile.manifest(graph))


def test_what_is_not_checked_does_not_reach_the_runtime() -> None:
    """ONNX Runtime takes a second format too, told by four bytes that may stand in a valid graph; and metadata."""
    built = hostile.unknown_metadata()
    graph = bytes(built.SerializeToString())
    actor = Actor.load(graph, hostile.manifest(graph))
    assert actor.probabilities(np.zeros((1, hostile.WIDTH), np.float32)).shape == (1, 13)
    disguised = b"\x3a\x06\x0a\x04ORTM" + graph
    with pytest.raises(ModelError):
        Actor.load(disguised, hostile.manifest(disguised))


@pytest.mark.parametrize("make", hostile.HARMLESS.values(), ids=hostile.HARMLESS)
def test_an_honest_network_is_taken(make: Callable[[], ModelProto]) -> None:
    graph = content(make)
    actor = Actor.load(graph, hostile.manifest(graph))
    rows = np.random.default_rng(1).standard_normal((3, hostile.WIDTH)).astype(np.float32)
    assert np.isfinite(actor.probabilities(rows)).all()


def test_fewer_rows_than_were_asked_for_are_no_answer() -> None:
    graph = content(hostile.one_row_for_all)
    with pytest.raises(ModelError, match="rows"):
        Actor.load(graph, hostile.manifest(graph)).probabilities(np.ones((3, hostile.WIDTH), np.float32))
