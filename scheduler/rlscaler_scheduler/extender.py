"""kube-scheduler's extender protocol: JSON over HTTP, with names of nodes (`nodeCacheCapable: true`) or whole nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlscaler_scheduler.objects import Json, PodFacts, Resources, pod_facts

MOST_NODES = 50_000
"""Nodes of a call; Kubernetes is made for 5,000."""

LONGEST_NAME = 253
"""Characters of a name in the API."""


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
        check_names(self.names)
        check_pod(self.facts)
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


def check_names(names: Sequence[str]) -> None:
    """Check that these may be names of nodes. Raises InvalidCallError."""
    if not isinstance(names, Sequence) or isinstance(names, str) or not set(map(type, names)) <= {str}:
        raise InvalidCallError("names of nodes have to be a list of texts")
    if len(names) > MOST_NODES:
        raise InvalidCallError(f"the call is about {len(names)} nodes; at most {MOST_NODES} are scored")
    if max(map(len, names), default=0) > LONGEST_NAME:
        raise InvalidCallError(f"the name of a node has more than {LONGEST_NAME} characters")


def check_pod(facts: PodFacts) -> None:
    """Check that the pod has names of the API, since records keep them. Raises InvalidCallError."""
    for field in ("namespace", "name", "uid"):
        text = getattr(facts, field)
        if not isinstance(text, str) or len(text) > LONGEST_NAME:
            raise InvalidCallError(f"Pod.metadata.{field} is no text of at most {LONGEST_NAME} characters")
