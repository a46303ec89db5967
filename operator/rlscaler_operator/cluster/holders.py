"""Holders of nodes and shared GPUs: the pods on each of them, so that a pool that shrinks can leave some of them empty.

All is known from the watch of pods; nodes are not read. A missed deletion makes a node look held, which is no worse
than not knowing its holders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rlscaler_core.placement.types import GPU_INDEX
from rlscaler_operator.cluster.bodies import Key, is_over, key_of

STAYS = ("DaemonSet", "Node")
"""Kinds of owners whose pods stay on a node: DaemonSets, and the kubelet for its static pods."""

Holders = frozenset[Key]
"""All pods that hold one place, which is empty without them."""

_Place = tuple[str, str]
"""Name of a node, and index of one of its GPUs; an empty index is the node itself."""


class Places(NamedTuple):
    """Known places of some pods, each as the set of its holders."""

    nodes: tuple[Holders, ...] = ()
    gpus: tuple[Holders, ...] = ()
    """Shared GPUs, known from an annotation of their pods."""


UNKNOWN = Places()


class NodeHolders:
    """Pods of the whole cluster by the places that they hold."""

    def __init__(self) -> None:
        self._places: dict[Key, tuple[_Place, ...]] = {}
        self._pods: dict[_Place, set[Key]] = {}

    def put(self, body: Mapping[str, Any]) -> None:
        """Take in the present state of a pod."""
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

    def pods(self) -> set[Key]:
        """Return all pods that hold a place."""
        return set(self._places)

    def of(self, pods: Iterable[Key]) -> Places:
        """Return the places that these pods hold, alone or with others."""
        places = sorted({place for pod in pods for place in self._places.get(pod, ())})
        holders = [(index, frozenset(self._pods[node, index])) for node, index in places]
        return Places(tuple(h for index, h in holders if not index), tuple(h for index, h in holders if index))


def _places(body: Mapping[str, Any]) -> Iterable[_Place]:
    metadata = body["metadata"]
    node = (body.get("spec") or {}).get("nodeName")
    owners = {owner.get("kind") for owner in metadata.get("ownerReferences") or ()}
    if not node or is_over(body) or owners & set(STAYS):
        return
    yield node, ""
    if index := (metadata.get("annotations") or {}).get(GPU_INDEX):
        yield node, index
