"""Which pods hold each node and each GPU that pods share, so that a pool that shrinks can leave some of them empty.

Everything is known from the watch of pods; nodes are not asked for. A deletion that the watch missed makes a node look
held: nothing is worse for it than without this knowledge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rlscaler_core.placement.types import GPU_INDEX
from rlscaler_operator.cluster.bodies import Key, is_over, key_of

STAYS = ("DaemonSet", "Node")
"""Owners of pods that come with a node: those of a DaemonSet, and those that a kubelet starts from files of its own."""

Holders = frozenset[Key]
"""All pods that hold one place; it is empty when all of them have gone."""

_Place = tuple[str, str]
"""The name of a node, and the index of one of its GPUs; an empty index is the node itself."""


class Places(NamedTuple):
    """The places that some pods are on, each as all of its holders. What is not known is not there."""

    nodes: tuple[Holders, ...] = ()
    gpus: tuple[Holders, ...] = ()
    """GPUs of which their pods say by an annotation that they have a share."""


UNKNOWN = Places()
"""Nothing is known of what pods hold."""


class NodeHolders:
    """The pods of the whole cluster by what they hold."""

    def __init__(self) -> None:
        self._places: dict[Key, tuple[_Place, ...]] = {}
        self._pods: dict[_Place, set[Key]] = {}

    def put(self, body: Mapping[str, Any]) -> None:
        """Take in a pod as it is now."""
        key, places = key_of(body), tuple(_places(body))
        if self._places.get(key, ()) == places:
            return
        self.drop(key)
        if places:
            self._places[key] = places
        for place in places:
            self._pods.setdefault(place, set()).add(key)

    def drop(self, key: Key) -> None:
        """Forget a pod."""
        for place in self._places.pop(key, ()):
            self._pods[place].discard(key)
            if not self._pods[place]:
                del self._pods[place]

    def of(self, pods: Iterable[Key]) -> Places:
        """Return the places that these pods hold, alone or with others."""
        found = sorted({place for pod in pods for place in self._places.get(pod, ())})
        held = [(index, frozenset(self._pods[node, index])) for node, index in found]
        return Places(tuple(h for index, h in held if not index), tuple(h for index, h in held if index))


def _places(body: Mapping[str, Any]) -> Iterable[_Place]:
    metadata = body["metadata"]
    node = (body.get("spec") or {}).get("nodeName")
    owners = {owner.get("kind") for owner in metadata.get("ownerReferences") or ()}
    if not node or is_over(body) or owners & set(STAYS):
        return
    yield node, ""
    if index := (metadata.get("annotations") or {}).get(GPU_INDEX):
        yield node, index
