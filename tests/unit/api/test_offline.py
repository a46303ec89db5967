"""What tools without a cluster read out of a policy."""

from __future__ import annotations

import yaml

from rlscaler_core.api.offline import read_policy

BODY = {
    "apiVersion": "rlscaler.io/v1alpha1",
    "kind": "RLScalingPolicy",
    "metadata": {"name": "chat", "namespace": "demo", "uid": "1", "resourceVersion": "2"},
    "spec": {
        "targets": {"gpu": {"deployment": "chat-gpu", "maxReplicas": 8}, "cpu": {"deployment": "c", "maxReplicas": 6}},
        "slo": {"latencyMilliseconds": 700, "objective": 99.5},
    },
    "status": {
        "targets": {"gpu": {"deployment": "chat-gpu", "current": 3}, "cpu": {"deployment": "c", "current": 5}},
        "learned": {
            "gpu": {"requestsPerSecond": 17.5, "coldStartSeconds": 61.0, "samples": 9},
            "cpu": {"requestsPerSecond": 3.5, "samples": 9},
        },
    },
}


def read(tmp_path, body):
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(body))
    return read_policy(path)


def test_what_was_learned_and_what_runs_is_read_from_the_status(tmp_path):
    found = read(tmp_path, BODY)
    assert (found.name, found.namespace, found.objective) == ("chat", "demo", 99.5)
    assert found.replicas == (3, 5)
    assert found.params.requests_per_second.tolist() == [[17.5, 3.5]]
    assert found.params.cold_start_seconds.tolist() == [[61.0, 8.0]]
    assert found.assumed == (
        "targets.gpu.costPerHour = 2.5",
        "targets.cpu.coldStartSeconds = 8",
        "targets.cpu.costPerHour = 0.625",
    )


def test_a_policy_that_was_never_applied_knows_no_replicas(tmp_path):
    assert read(tmp_path, {key: value for key, value in BODY.items() if key != "status"}).replicas is None
