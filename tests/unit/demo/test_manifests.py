"""What the demo creates: fit to the nodes of the local control plane, and the same bounds for both contenders."""

from __future__ import annotations

from pathlib import Path

from rlscaler_dev.demo.manifests import (
    access,
    autoscalers,
    capacity_weights,
    http_route,
    operator_roles,
    policy,
)
from rlscaler_dev.demo.settings import Settings

SETTINGS = Settings(out=Path("/results"))


def test_first_weights_are_by_capacity() -> None:
    assert capacity_weights(SETTINGS) == (833, 167)
    backends = http_route(SETTINGS)["spec"]["rules"][0]["backendRefs"]
    assert [(backend["name"], backend["weight"]) for backend in backends] == [("chat-gpu", 833), ("chat-cpu", 167)]


def test_both_contenders_have_the_same_bounds_and_targets() -> None:
    targets = policy(SETTINGS)["spec"]["targets"]
    for autoscaler, pool in zip(autoscalers(SETTINGS), ("gpu", "cpu"), strict=True):
        assert autoscaler["spec"]["scaleTargetRef"]["name"] == targets[pool]["deployment"]
        assert autoscaler["spec"]["minReplicas"] == targets[pool]["minReplicas"]
        assert autoscaler["spec"]["maxReplicas"] == targets[pool]["maxReplicas"]


def test_every_rule_of_the_operator_is_granted_once_and_only_in_its_namespaces() -> None:
    roles = [thing for thing in access() if "rules" in thing]
    assert [role["rules"] for role in roles] == [role["rules"] for role in operator_roles()]
    assert {thing["kind"] for thing in access()} == {"Namespace", "ServiceAccount", "Role", "RoleBinding"}
