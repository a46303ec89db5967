"""`benchmarks.scheduler`: what is summed up when figures are missing, and how long it waits for nodes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import Any

import pytest
from benchmarks import scheduler
from benchmarks.scheduler import ALONE, PLUGIN, SETTLED_SECONDS, p99, settle, summary


def row(way: str, index: int, **more: Any) -> dict[str, Any]:
    return {"nodes": 4, "round": index, "way": way, "pods": 3, "scheduler_cpu_ms": 2.0, "pods_per_s": 9.0, **more}


def test_a_percentile_that_is_not_known_is_left_out() -> None:
    assert p99("", r'calls_bucket{le="([^"]+)"}') is None
    known = [row(PLUGIN, index, wait_p99_at_most_ms=wait) for index, wait in enumerate((None, 10.0, 20.0))]
    (made,) = summary(known)
    assert (made["rounds"], made["wait_p99_at_most_ms"]) == (3, 15.0)
    (nothing,) = summary(known[:1])
    assert "wait_p99_at_most_ms" not in nothing


def test_rows_are_written_before_they_are_summed_up(monkeypatch, tmp_path) -> None:
    class Cluster:
        kubeconfig = tmp_path

    class Kube:
        def apply_all(self, items: object) -> None:
            del items

    @contextmanager
    def one(what: object):
        yield what

    def broken(rows: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(scheduler.api, "started", lambda *given, **options: one(Cluster()))
    monkeypatch.setattr(scheduler.KubeClient, "from_kubeconfig", lambda path: one(Kube()))
    monkeypatch.setattr(scheduler, "settle", lambda kube: None)
    monkeypatch.setattr(scheduler, "measure", lambda *given: {"way": ALONE})
    monkeypatch.setattr(scheduler, "summary", broken)
    out = tmp_path / "cost.json"
    monkeypatch.setattr("sys.argv", ["scheduler", "--nodes", "4", "--way", ALONE, "--out", str(out)])
    with pytest.raises(ValueError, match="broken"):
        scheduler.main()
    assert json.loads(out.read_text()) == {"rows": [{"nodes": 4, "round": 0, "way": ALONE}]}


def test_nodes_that_never_settle_are_not_waited_for_without_end(monkeypatch) -> None:
    now = [0.0]

    class Changing:
        def get(self, path: str) -> dict[str, Any]:
            assert now[0] < 1000, "it waits for ever"
            return {"items": [{"metadata": {"resourceVersion": str(now[0])}}]}

    monkeypatch.setattr(scheduler.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(scheduler.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    with pytest.raises(TimeoutError, match=f"still change after {SETTLED_SECONDS} s"):
        settle(Changing())
    assert SETTLED_SECONDS < now[0] < SETTLED_SECONDS + 10
