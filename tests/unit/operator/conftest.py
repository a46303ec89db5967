import pytest

from rlscaler_operator.decisions import Entry, fresh_state
from rlscaler_rl.decision.params import make_params
from rlscaler_rl.decision.rule import Rule
from rlscaler_rl.decision.samples import make_samples


@pytest.fixture(scope="session")
def rule():
    return Rule()


@pytest.fixture(scope="session")
def entry(rule):
    """A policy's row of a batch, under a load that two pools of two carry easily."""

    def make(kind="action", actor=rule, replicas=(2, 2), rate=20.0, **params):
        table = make_params(1, requests_per_second=(20.0, 4.0), **params)
        samples = make_samples(
            1,
            time=100.0,
            arrival_rate=rate,
            cpu_utilization=50.0,
            gpu_utilization=50.0,
            p95_ms=100.0,
            spec_replicas=replicas,
            ready_replicas=replicas,
        )
        return Entry(table, fresh_state(actor, replicas, 100.0), samples, kind, actor)

    return make


@pytest.fixture(scope="session")
def policy_body():
    """A policy of the Deployment chat-gpu as the API server gives it."""

    def make(name="chat", **metadata):
        return {
            "apiVersion": "rlscaler.io/v1alpha1",
            "kind": "RLScalingPolicy",
            "metadata": {
                "namespace": "ns",
                "name": name,
                "uid": name,
                "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                **metadata,
            },
            "spec": {
                "mode": "Auto",
                "targets": {"gpu": {"deployment": f"{name}-gpu", "maxReplicas": 4}},
                "slo": {"latencyMilliseconds": 500},
            },
            "status": {},
        }

    return make
