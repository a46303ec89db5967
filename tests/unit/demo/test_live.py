"""What the demo knows at this moment: pods by watch events, requests and decisions by the end of growing files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rlscaler_dev.demo.recorder import PoolBook, Replicas, route_weights
from rlscaler_dev.demo.tails import RECENT_SECONDS, LiveLoad, Tail, read_decision


def pod(uid: str, ready: bool = False, terminating: bool = False, phase: str = "Pending") -> dict[str, Any]:
    metadata: dict[str, Any] = {"uid": uid} | ({"deletionTimestamp": "now"} if terminating else {})
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": metadata, "status": {"phase": phase, "conditions": conditions}}


def test_pods_are_counted_from_creation_to_the_end_of_their_termination() -> None:
    book = PoolBook()
    book.scale({"spec": {"replicas": 2}})
    steps = [
        ("ADDED", pod("a"), Replicas(2, 1, 0, 1)),
        ("MODIFIED", pod("a", ready=True), Replicas(2, 1, 1, 0)),
        ("ADDED", pod("b"), Replicas(2, 2, 1, 1)),
        ("MODIFIED", pod("a", ready=True, terminating=True), Replicas(2, 2, 0, 1)),
        ("DELETED", pod("a", ready=True, terminating=True), Replicas(2, 1, 0, 1)),
        ("MODIFIED", pod("b", phase="Failed"), Replicas(2, 0, 0, 0)),
    ]
    for event, thing, expected in steps:
        book.pod(event, thing)
        assert book.replicas == expected


def test_route_weights_are_by_backend_name() -> None:
    backends = [{"name": "chat-cpu", "weight": 200}, {"name": "chat-gpu", "weight": 800}]
    assert route_weights({"spec": {"rules": [{"backendRefs": backends}]}}, "chat-gpu", "chat-cpu") == (800, 200)
    backends = [{"name": "chat-gpu"}]
    assert route_weights({"spec": {"rules": [{"backendRefs": backends}]}}, "chat-gpu", "chat-cpu") == (1, 0)


def test_a_tail_gives_each_complete_line_once(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "log")
    assert tail.lines() == []
    with (tmp_path / "log").open("w") as file:
        file.write("one\ntw")
        file.flush()
        assert tail.lines() == ["one"]
        file.write("o\nthree\n")
        file.flush()
        assert tail.lines() == ["two", "three"]
        assert tail.lines() == []


def test_live_figures_are_about_the_last_seconds(tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    load = LiveLoad(Tail(file), slo_ms=1000)
    assert math.isnan(load.figures(100).p95_ms)
    file.write_text(
        "scheduled_at,latency_ms,outcome,status,pool\n80,100,ok,200,gpu\n99,200,ok,200,gpu\n98,1500,ok,200,cpu\n"
    )
    figures = load.figures(100)
    assert figures.finished_rps == pytest.approx(2 / RECENT_SECONDS)
    assert figures.late_percent == pytest.approx(50)
    assert 200 < figures.p95_ms <= 1500
    with file.open("a") as more:
        more.write("99.5,20,failed,503,gpu\n")
    assert load.figures(100).late_percent == pytest.approx(100 * 2 / 3)
    assert (load.total, load.missed) == (4, 2)
    assert load.figures(1000).finished_rps == 0


def guard(name: str, before: tuple[int, int], after: tuple[int, int]) -> dict[str, Any]:
    return {"guard": name, "before": dict(zip(("gpu", "cpu"), before, strict=True)),
            "after": dict(zip(("gpu", "cpu"), after, strict=True))}  # fmt: skip


def test_a_decision_is_read_from_the_audit_log() -> None:
    record = {
        "time": 5.5,
        "kind": "action",
        "action": [1, -2, 0],
        "placement": "PreferGPU",
        "guards": [guard("floor", (1, 1), (3, 1))],
        "unknown_required": ["arrival_rate"],
    }
    decision = read_decision(json.dumps(record))
    assert decision.action_text == "gpu +1 cpu -2 prefer GPU"
    assert decision.guards == ("floor gpu 1→3",)
    assert decision.unknown_required == 1
    assert read_decision(json.dumps({**record, "action": None, "kind": "floor"})).action_text == "no actor"
