"""Policies in the states that the page has to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.batch import Entry, decide_all, fresh_state
from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.tables import make_params, make_samples
from tests.harness.records import recorded


def condition(type_: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-05T00:00:00Z",
    }


def body(name: str = "chat", mode: str = "Auto", namespace: str = "ns", **status: Any) -> dict[str, Any]:
    """Return a policy that acts, compared with the HPA formula; keywords replace parts of the status."""
    day = {"hours": 9.0, "requests": 1000.0, "cost": 40.0, "otherCost": 50.0, "late": 4.0, "otherLate": 9.0}
    decision = {
        "id": "0199aaaa-0000-7000-8000-000000000001",
        "time": "2026-01-09T12:00:00Z",
        "action": {"gpu": 1, "cpu": 0, "placement": "Balanced"},
        "base": {"gpu": 2},
        "desired": {"gpu": 4},
        "applied": True,
        "reasons": ["Floor"],
    }
    guards = [{"name": "proposal", "after": {"gpu": 3}}, {"name": "floor", "after": {"gpu": 4}}]
    return {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": name,
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "resourceVersion": "1",
        },
        "spec": {
            "mode": mode,
            "targets": {"gpu": {"deployment": f"{name}-gpu", "maxReplicas": 10}},
            "slo": {"latencyMilliseconds": 500},
        },
        "status": {
            "conditions": [condition("Ready", "True", "Ready"), condition("Active", "True", "Acting")],
            "targets": {"gpu": {"deployment": f"{name}-gpu", "current": 2, "ready": 2, "desired": 4, "summary": "2/4"}},
            "capacity": {"unit": "requests", "gpu": 20.0},
            "lastDecision": decision | {"guards": guards, "result": "gpu: 2 -> 4"},
            "history": [decision],
            "observation": {
                "time": "2026-01-09T12:00:00Z",
                "p95Latency": {"value": 321.0, "state": "Known", "ageSeconds": 2.0},
            },
            "promotion": {
                "state": "NotRequired",
                "since": "2026-01-05T00:00:00Z",
                "against": "HPAFormula",
                "days": 6,
                "regret": {"costPercent": {"mean": -14.0, "low": -20.0, "high": -8.0}},
                "evidence": [{"date": "2026-01-09", **day}],
            },
            **status,
        },
    }


@pytest.fixture(scope="session")
def policy():
    return body


@pytest.fixture(scope="session")
def decision_log(tmp_path_factory):
    """Write a log of `length` decisions of ns/chat under the forecast rule, the last one at `end`; return its path."""

    def make(length: int, end: float, seconds: float = 30.0, **params: Any) -> Path:
        actor, replicas, lines = Rule(), (2, 0), []
        table = make_params(
            1,
            present=(True, False),
            requests_per_second=(20.0, np.nan),
            max_replicas=(10, 0),
            min_replicas=(1, 0),
            window_seconds=30.0,
            learns_capacity=False,  # utilization stands at 70 % whatever the load is
            **params,
        )
        state = fresh_state(actor, replicas, end - seconds * length)
        for number in range(length):
            now = end - seconds * (length - 1 - number)
            samples = make_samples(
                1,
                time=now,
                arrival_rate=60 + 50 * np.sin(number / 20),
                gpu_utilization=70.0,
                p95_ms=240.0,
                age_seconds=np.array([1.5, np.inf, np.inf, 1.5, 1.5, 0.0]),
                spec_replicas=replicas,
                ready_replicas=replicas,
            )
            outcome = decide_all([Entry(table, state, samples, "action", actor)])[0]
            identity = f"0199aaaa-0000-7000-8000-{number:012}"
            lines.append(json.dumps(recorded(outcome, identity, time=now), allow_nan=False))
            state, replicas = outcome.state, tuple(outcome.decision.desired[0].tolist())
        path = tmp_path_factory.mktemp("log") / "audit.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return path

    return make
