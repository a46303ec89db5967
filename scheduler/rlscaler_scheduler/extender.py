"""kube-scheduler's extender protocol: JSON over HTTP, with names of nodes (`nodeCacheCapable: true`) or whole nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlscaler_scheduler.objects import Json, PodFacts, Resources, pod_facts


class InvalidCallError(Exception):
    """Raised for a body that kube-scheduler does not send."""


class Call:
    """The arguments of `filter` and `prioritize`."""

    def __init__(self, body: Any, resources: Resources) -> None:
        """Raises InvalidCallError."""
        try:
            self.facts: PodFacts = pod_facts(body["Pod"], resources)
            self._nodes: Json | None = body.get("Nodes")
            names = body.get("NodeNames")
            self.names: Sequence[str] = (
                names if names is not None else [node["metadata"]["name"] for node in (self._nodes or {})["items"]]
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise InvalidCallError(
                f"not the arguments of a kube-scheduler extender ({error!r}): Pod and NodeNames or Nodes are expected"
            ) from error
        self._by_name = body.get("NodeNames") is not None

    def filtered(self, refused: dict[str, str]) -> dict[str, Any]:
        """The answer to `filter`, in the form of the question.

        No pod that leaves a refused node makes it nearer, so none is to be evicted there.
        """
        answer: dict[str, Any] = {"FailedNodes": {}, "FailedAndUnresolvableNodes": refused, "Error": ""}
        if self._by_name:
            return answer | {"NodeNames": [name for name in self.names if name not in refused]}
        items = [node for node in (self._nodes or {})["items"] if node["metadata"]["name"] not in refused]
        return answer | {"Nodes": {"items": items}}

    def prioritized(self, levels: Sequence[int]) -> list[dict[str, Any]]:
        """The answer to `prioritize`, with the level of each node."""
        return [{"Host": name, "Score": level} for name, level in zip(self.names, levels, strict=True)]
