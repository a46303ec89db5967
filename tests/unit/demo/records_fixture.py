"""Small records made by hand, and a longer made-up run for the picture."""

from __future__ import annotations

import numpy as np

from rlscaler_dev.demo.records import Decisions, Records, Requests, Run, Steps

START = 1_000_000.0
KEYS = [
    *("contender", "pattern", "seed", "requests", "failures", "goodput_rps", "p50_ms", "p95_ms", "p99_ms"),
    *("slo_violation_ratio", "gpu_replica_seconds", "cpu_replica_seconds", "cost", "decisions", "scale_ups"),
    *("scale_downs", "placement_changes", "unknown_observations", "server_version"),
    *("duration_s", "interval_seconds", "slo_ms", "versions"),
]
"""Figures of a summary, in their order."""


def make_run(**changes: object) -> Run:
    values: dict[str, object] = {
        "contender": "rl",
        "pattern": "spike",
        "seed": 1,
        "duration_s": 4.0,
        "interval_seconds": 15.0,
        "slo_ms": 1000.0,
        "started_at": START,
        "server_version": "v1.36.3",
        "versions": {"rlscaler": "0.1.0"},
        "cost_per_hour": {"gpu": 2.5, "cpu": 0.625},
    }
    return Run(**{**values, **changes})  # type: ignore[arg-type]


def make_requests(*rows: tuple[float, float, bool]) -> Requests:
    """Rows of (seconds since the load began, latency in ms, answered)."""
    table = np.array([[at, latency] for at, latency, _ in rows], dtype=float).reshape(len(rows), 2)
    return Requests(START + table[:, 0], table[:, 1], np.array([ok for *_, ok in rows], dtype=bool))


def make_steps(*rows: tuple[float, ...], columns: int) -> Steps:
    """Rows of (seconds since the load began, values …)."""
    table = np.array(rows, dtype=float).reshape(len(rows), columns + 1)
    return Steps(START + table[:, 0], table[:, 1:])


def make_decisions(*rows: tuple[float, bool, int, int]) -> Decisions:
    """Rows of (seconds since the load began, by the actor, placement, required observations unknown)."""
    table = np.array(rows, dtype=float).reshape(len(rows), 4)
    return Decisions(START + table[:, 0], table[:, 1] > 0, table[:, 2].astype(np.int64), table[:, 3].astype(np.int64))


def make_records(**changes: object) -> Records:
    values: dict[str, object] = {
        "run": make_run(),
        "offered_rps": np.array([2.0, 2.0, 0.0, 1.0]),
        "requests": make_requests(
            (-0.5, 10, True), (0.0, 100, True), (0.5, 300, True), (1.2, 1500, True), (1.4, 5000, False), (3.9, 50, True)
        ),
        "replicas": {
            "gpu": make_steps((-9, 1, 1, 1, 0), (1.5, 3, 1, 1, 0), (1.5, 3, 3, 1, 2), (3.5, 3, 3, 3, 0), columns=4),
            "cpu": make_steps((-9, 2, 2, 2, 0), (2.0, 1, 2, 2, 0), (2.5, 1, 1, 1, 0), columns=4),
        },
        "routes": make_steps((-9, 833, 167), (-1, 500, 500), (2.2, 900, 100), columns=2),
        "decisions": make_decisions((-5, True, 1, 1), (1.5, True, 1, 0), (1.7, False, 1, 9), (2.2, True, 0, 2)),
    }
    return Records(**{**values, **changes})  # type: ignore[arg-type]


def made_up_run(seconds: int = 300) -> Records:
    """A spike with queueing while replicas start, for drawing only."""
    generator = np.random.default_rng(7)
    offered = np.where((np.arange(seconds) >= 0.3 * seconds) & (np.arange(seconds) < 0.7 * seconds), 100.0, 10.0)
    arrivals = np.concatenate([i + np.sort(generator.random(generator.poisson(r))) for i, r in enumerate(offered)])
    jammed = (arrivals > 0.3 * seconds) & (arrivals < 0.47 * seconds)
    latency = generator.lognormal(4.2, 0.5, len(arrivals)) * np.where(jammed, 25, 1)
    up, half, down = 0.32 * seconds, 0.42 * seconds, 0.75 * seconds
    return Records(
        run=make_run(duration_s=float(seconds)),
        offered_rps=offered,
        requests=Requests(START + arrivals, np.minimum(latency, 5000), latency < 5000),
        replicas={
            "gpu": make_steps(
                (-9, 1, 1, 1, 0), (up, 3, 3, 1, 2), (up + 15, 5, 5, 1, 4), (up + 45, 5, 5, 3, 2),
                (up + 60, 5, 5, 5, 0), (down, 3, 3, 3, 0), (down + 15, 1, 1, 1, 0), columns=4,
            ),
            "cpu": make_steps(
                (-9, 1, 1, 1, 0), (up, 6, 6, 1, 5), (up + 8, 6, 6, 6, 0), (up + 15, 10, 10, 6, 4),
                (up + 23, 10, 10, 10, 0), (half + 60, 4, 4, 4, 0), (down, 1, 1, 1, 0), columns=4,
            ),
        },
        routes=make_steps((-9, 833, 167), (up, 600, 400), (half, 833, 167), (down, 900, 100), columns=2),
        decisions=make_decisions((-9, True, 0, 0), (up, True, 2, 0), (half, True, 1, 0), (down, True, 0, 0)),
    )  # fmt: skip
