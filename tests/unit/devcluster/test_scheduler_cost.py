"""`benchmarks.scheduler`: sums where figures are missing."""

from __future__ import annotations

from typing import Any

from benchmarks.scheduler import PLUGIN, p99, summary


def row(way: str, index: int, **more: Any) -> dict[str, Any]:
    return {"nodes": 4, "round": index, "way": way, "pods": 3, "scheduler_cpu_ms": 2.0, "pods_per_s": 9.0, **more}


def test_a_percentile_that_is_not_known_is_left_out() -> None:
    assert p99("", r'calls_bucket{le="([^"]+)"}') is None
    known = [row(PLUGIN, index, wait_p99_at_most_ms=wait) for index, wait in enumerate((None, 10.0, 20.0))]
    (made,) = summary(known)
    assert (made["rounds"], made["wait_p99_at_most_ms"]) == (3, 15.0)
    (nothing,) = summary(known[:1])
    assert "wait_p99_at_most_ms" not in nothing
