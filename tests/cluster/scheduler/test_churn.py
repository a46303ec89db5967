"""test1 and test2 on the real kube-scheduler: each begins on an empty cluster and leaves one."""

from __future__ import annotations

import pytest

from rlscaler_core.placement.policies import Policy
from rlscaler_dev.cluster import objects
from rlscaler_dev.placement.churn import HARD_MS, OF_NODES, Plan, play
from rlscaler_dev.placement.contenders import DEFAULT, Contender
from rlscaler_dev.placement.control_plane import DEPLOYMENTS, NAMESPACE, PODS, ControlPlane, deployment
from tests.harness.waiting import until


@pytest.fixture
def left_over(kube, nodes) -> None:
    """What a run that was killed leaves: a Deployment whose pod is on a node."""
    kube.create(objects.namespace(NAMESPACE))
    kube.create(deployment("d-000", Contender(DEFAULT)))
    until(lambda: [item for item in kube.get(PODS)["items"] if item["spec"].get("nodeName")])


def test_a_run_does_not_count_what_a_killed_one_left(kube, cluster, nodes, left_over, tmp_path) -> None:
    bed = ControlPlane(kube, cluster.kubeconfig, len(nodes))
    assert kube.get(DEPLOYMENTS)["items"] == []
    seen: list[dict[str, float]] = []
    plan = Plan("test2", deployments=3, every_s=0.2, wait_s=1.0, repeats=2)
    course = play(bed, Contender(DEFAULT), plan, tmp_path, lambda course: seen.append(course.rows[-1]))
    assert course.rows == seen
    assert seen[0]["pods"] + seen[0]["waiting"] <= 1
    assert max(row["pods"] for row in seen) >= 3
    assert seen[-1]["pods"] < 6, "the oldest goes whenever a new one comes"
    assert kube.get(DEPLOYMENTS)["items"] == []
    assert kube.get(PODS)["items"] == []


def test_users_that_move_are_seen_by_the_server_and_no_pod_goes_above_its_limit(kube, cluster, nodes, tmp_path) -> None:
    bed = ControlPlane(kube, cluster.kubeconfig, len(nodes))
    seen: list[dict[str, float]] = []
    plan = Plan("test2", deployments=12, every_s=1.0, wait_s=3.0, repeats=2, seed=3)
    contender = Contender("EL", Policy.EL, "latency-then-pack")
    course = play(bed, contender, plan, tmp_path, lambda course: seen.append(course.rows[-1]))
    looks = course.nodes["latency_ms"]
    assert {len(course.nodes[name]) for name in OF_NODES} == {len(seen)}
    assert max(map(max, looks)) > HARD_MS
    assert looks[0] != looks[-1]
    assert max(row["pods"] for row in seen) >= 10
    assert seen[-1]["placed_above_hard"] == 0
