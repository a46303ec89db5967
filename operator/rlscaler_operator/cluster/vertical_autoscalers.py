"""VerticalPodAutoscalers that change the size of pods, by the targets whose pods they change."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

from rlscaler_operator.cluster.bodies import Key, key_of, referenced

OFF = "Off"
DEFAULT_MODE = "Recreate"
"""Default of `updateMode`."""


class VerticalAutoscaler(NamedTuple):
    """A VerticalPodAutoscaler that changes pods."""

    name: str
    target: str
    """Name of a Deployment, or a reference to an object of another kind."""
    mode: str
    revision: int
    """Number that is unique among all states of all VerticalPodAutoscalers."""


class VerticalAutoscalers:
    """VerticalPodAutoscalers that change pods. One whose `updateMode` is Off only recommends, and is left out."""

    def __init__(self) -> None:
        self._by_name: dict[Key, VerticalAutoscaler] = {}
        self._of_target: dict[Key, dict[Key, VerticalAutoscaler]] = {}
        self._numbers = count(1)

    def put(self, body: Mapping[str, Any]) -> None:
        """Take in the present state of a VerticalPodAutoscaler."""
        spec, key = body.get("spec") or {}, key_of(body)
        mode = (spec.get("updatePolicy") or {}).get("updateMode") or DEFAULT_MODE
        target = referenced(spec.get("targetRef") or {})
        old = self.drop(key)
        if mode == OFF:
            return
        same = old is not None and (old.target, old.mode) == (target, mode)
        number = old.revision if old is not None and same else next(self._numbers)
        self._by_name[key] = autoscaler = VerticalAutoscaler(key[1], target, mode, number)
        self._of_target.setdefault((key[0], target), {})[key] = autoscaler

    def drop(self, key: Key) -> VerticalAutoscaler | None:
        """Forget a VerticalPodAutoscaler and return it; None where it was not known."""
        old = self._by_name.pop(key, None)
        if old is not None:
            target = key[0], old.target
            del self._of_target[target][key]
            if not self._of_target[target]:
                del self._of_target[target]
        return old

    def known(self) -> set[Key]:
        """Return the names of all that are remembered."""
        return set(self._by_name)

    def of(self, target: Key) -> VerticalAutoscaler | None:
        """Return a VerticalPodAutoscaler that changes the pods of a target; None where there is none."""
        return next(iter(self._of_target.get(target, {}).values()), None)
