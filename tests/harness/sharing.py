"""Services on GPUs alone that share an RLScalingBudget on a real API server, and what its status says of them."""

from __future__ import annotations

import os
from typing import Any

from rlscaler_operator.cluster.shards import shard_of
from tests.harness.load import Load
from tests.harness.world import World

BUDGETS = "/apis/rlscaler.io/v1alpha1/rlscalingbudgets"
RPS = 20.0
"""Requests per second that one replica answers."""


class Sharing:
    """The budgets of the services of one namespace."""

    def __init__(self, world: World) -> None:
        self.world, self._kube = world, world.kube
        self._made: list[str] = []

    def service(
        self, name: str, rate: float, replicas: int = 1, pool: str = "gpu", gpus: int = 0, cpu: str = "", **spec: Any
    ) -> Load:
        """A service of at most ten replicas on the nodes of `pool`; each of them takes `gpus` or `cpu` of its node.

        `spec` is added to that of its policy.
        """
        load = self.world.service(name, rate=rate)
        resources = {"requests": {"cpu": cpu}} if cpu else None
        self.world.deployment(f"{name}-gpu", pool, replicas, gpus=gpus, resources=resources)
        target = {"deployment": f"{name}-gpu", "maxReplicas": 10, "requestsPerSecond": RPS, "coldStartSeconds": 8}
        quick = {"scaleDown": {"stabilizationWindowSeconds": 0}}
        self.world.policy(name, targets={"gpu": target}, behavior=quick, guards={"ceilingSeconds": 60}, **spec)
        self.world.patch("rlscalingpolicies", name, {"metadata": {"labels": {"share": name}}})
        return load

    def limit(self, name: str, most: int) -> None:
        """Give a service a `maxReplicas` of its own."""
        self.world.patch("rlscalingpolicies", name, {"spec": {"targets": {"gpu": {"maxReplicas": most}}}})

    def remove(self, name: str) -> None:
        """Delete a service, and then its policy."""
        self.world.delete("deployments", f"{name}-gpu")
        self.world.delete("rlscalingpolicies", name)

    def budget(self, name: str, amount: float | None, *members: dict[str, Any], **spec: Any) -> str:
        """Create a budget of policies of this namespace; gives its full name."""
        full = self.full_name(name)
        entries = [{"namespace": self.world.namespace} | one for one in members]
        body = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingBudget", "metadata": {"name": full}}
        terms = {"members": entries, "intervalSeconds": 5} | ({} if amount is None else {"amount": amount})
        self._kube.request("POST", BUDGETS, body | {"spec": terms | spec})
        self._made.append(full)
        return full

    def full_name(self, name: str) -> str:
        """Budgets are of the whole cluster: their names tell the test runs apart."""
        return f"{name}-{os.getpid()}"

    def of_shard(self, shard: int, names: str, shards: int = 2) -> str:
        """A name of a policy that begins with `names` and is of that shard."""
        candidates = (f"{names}-{number}" for number in range(100))
        return next(one for one in candidates if shard_of((self.world.namespace, one), shards) == shard)

    def shard_of_budget(self, name: str, shards: int = 2) -> int:
        """The shard whose operator shares the budget of that short name."""
        return shard_of(("", self.full_name(name)), shards)

    def delete(self, full: str) -> None:
        self._kube.delete(f"{BUDGETS}/{full}")

    def close(self) -> None:
        """Delete all budgets that are left."""
        there = {item["metadata"]["name"] for item in self._kube.request("GET", BUDGETS)["items"]}
        for full in there.intersection(self._made):
            self.delete(full)

    def gpus(self, name: str) -> int:
        """What a service has in `spec.replicas`."""
        return int(self.world.get("deployments", f"{name}-gpu")["spec"]["replicas"])

    def status(self, full: str) -> dict[str, Any]:
        found: dict[str, Any] = self._kube.request("GET", f"{BUDGETS}/{full}").get("status", {})
        return found

    def condition(self, full: str, type_: str) -> tuple[str, str]:
        """Status and reason."""
        return next(((c["status"], c["reason"]) for c in self._conditions(full) if c["type"] == type_), ("", ""))

    def message(self, full: str, type_: str) -> str:
        return next((c["message"] for c in self._conditions(full) if c["type"] == type_), "")

    def _conditions(self, full: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status(full).get("conditions", [])
        return found

    def share(self, full: str, policy: str) -> dict[str, Any]:
        """What the status says of a policy."""
        return next((one for one in self.status(full).get("members", []) if one["policy"] == policy), {})


def member(name: str, **terms: Any) -> dict[str, Any]:
    """The entry of a budget that selects a service."""
    return {"name": name, "matchLabels": {"share": name}} | terms
