"""Sizes of the pods of each target: their requests, and the kubelets' reports on them.

They are stored only where the operator resizes pods: bodies of all pods would cost hundreds of MiB in a large cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlscaler_operator.cluster.bodies import Key, older

METADATA = ("name", "generation", "resourceVersion", "deletionTimestamp")
CONTAINER = ("name", "resources", "resizePolicy")
STATUS = ("phase", "observedGeneration", "conditions", "containerStatuses")


class SizedPods:
    """Parts of pods, by target and name."""

    def __init__(self) -> None:
        self._pods: dict[Key, dict[str, dict[str, Any]]] = {}

    def put(self, target: Key, body: Mapping[str, Any]) -> None:
        """Take in the present state of a pod, from a watch or the answer to a write; an older state is ignored."""
        metadata = body["metadata"]
        pods, name = self._pods.setdefault(target, {}), metadata["name"]
        known = pods.get(name)
        if known is not None and older(metadata["resourceVersion"], known["metadata"]["resourceVersion"]):
            return
        pods[name] = {
            "metadata": _parts(metadata, METADATA),
            "spec": {"containers": [_parts(container, CONTAINER) for container in body["spec"]["containers"]]},
            "status": _parts(body.get("status") or {}, STATUS),
        }

    def drop(self, target: Key, name: str) -> None:
        """Forget a pod."""
        remove(self._pods, target, name)

    def of(self, target: Key) -> list[dict[str, Any]]:
        """Return the pods of a target, with the parts of their bodies about their size."""
        return list(self._pods.get(target, {}).values())


def remove(by_target: dict[Key, dict[str, Any]], target: Key, name: str) -> None:
    """Remove a pod of a target, and the target with its last pod."""
    pods = by_target.get(target, {})
    pods.pop(name, None)
    if not pods:
        by_target.pop(target, None)


def _parts(body: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: body[name] for name in names if name in body}
