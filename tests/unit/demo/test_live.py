"""What the demo knows at this moment: pods by watch events, requests and decisions by the end of growing files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from rlscaler_dev.demo.days import JOB_BEGIN, MINUTE_SECONDS, begin_after, make_days, memory
from rlscaler_dev.demo.pods import PoolBook, Replicas
from rlscaler_dev.demo.recorder import Meter, route_weights
from rlscaler_dev.demo.settings import Settings
from rlscaler_dev.demo.tails import RECENT_SECONDS, LiveLoad, Tail, read_decision
from rlscaler_dev.demo.words import action_words


def pod(uid: str, ready: bool = False, terminating: bool = False, phase: str = "Pending") -> dict[str, Any]:
    metadata: dict[str, Any] = {"uid": uid} | ({"deletionTimestamp": "now"} if terminating else {})
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, "conditions": conditions}}


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
        assert Replicas.of(2, list(book.pods.values())) == expected


def test_pods_are_billed_from_the_begin_of_the_load() -> None:
    meter = Meter()
    meter.count(2, 100.0)
    meter.begin(110.0)
    meter.count(3, 120.0)
    assert meter.pod_seconds(125.0) == 2 * 10 + 3 * 5


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


def record(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "time": 5.5,
        "kind": "action",
        "base": {"gpu": 1, "cpu": 3},
        "desired": {"gpu": 3, "cpu": 1},
        "placement": "PreferGPU",
        "guards": [guard("floor", (1, 1), (3, 1))],
        "unknown_required": ["arrival_rate"],
        "state": {"forecaster": None},
        "params": {"cold_start_seconds": [45.0, 8.0], "interval_seconds": 15.0},
    }
    return {**values, **changes}


def test_a_decision_is_read_from_the_audit_log_and_put_into_words() -> None:
    decision = read_decision(json.dumps(record()))
    assert action_words(decision) == "orders 2 GPU, gives back 2 CPU; floor gpu 1→3"
    assert decision.unknown_required == 1
    above = {"gpu": {"percent": 17.6, "since": 1_767_604_440.0}}
    planned = [guard("proposal", (1, 3), (3, 1)), guard("floor", (3, 1), (3, 1))]
    moved = action_words(read_decision(json.dumps(record(headroom=above, guards=planned))))
    assert moved == "orders 2 GPU, gives back 2 CPU; gpu 18 % above the plan since 09:14: 3 GPU and 1 CPU planned"
    idle = [guard("limits", (12, 3), (10, 3)), guard("behavior", (1, 0), (1, 3))]
    same = read_decision(json.dumps(record(desired={"gpu": 1, "cpu": 3}, guards=idle)))
    assert action_words(same) == "keeps the replicas"


@pytest.mark.slow
def test_a_jump_that_came_every_day_is_expected_in_words() -> None:
    duration, settings = 300, Settings(out=Path("/out"))
    begin = begin_after(1_767_571_200.0 + 53, duration)
    text = memory(make_days(duration, seed=1), begin, settings)
    job = begin + JOB_BEGIN * duration
    decisions = [
        read_decision(json.dumps(record(time=time, guards=[], state={"forecaster": text})))
        for time in (job - 600, job - 50)
    ]
    assert [decision.jump > 0.5 for decision in decisions] == [False, True]
    assert "expects a jump of the load within a minute" in action_words(decisions[1])


@pytest.mark.parametrize("second", range(0, 60, 7))
def test_the_job_begins_in_the_middle_of_a_minute_whenever_the_demo_is_started(second: int) -> None:
    begin = begin_after(1_767_571_200.0 + second, 300)
    assert 0 <= begin - (1_767_571_200.0 + second) < 60
    assert MINUTE_SECONDS[0] <= (begin + JOB_BEGIN * 300) % 60 <= MINUTE_SECONDS[1]
