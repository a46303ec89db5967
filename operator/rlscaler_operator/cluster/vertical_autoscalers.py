"""What the watch says about VerticalPodAutoscalers: which of them change the size of whose pods."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

from rlscaler_core.api.targets import reference
from rlscaler_operator.cluster.bodies import Key, key_of

OFF = "Off"
DEFAULT_MODE = "Recreate"
"""What an `updateMode` that is left out stands for."""


class VerticalAutoscaler(NamedTuple):
    """A VerticalPodAutoscaler that changes pods."""

    name: str
    target: str
    """What it sizes: the name of a Deployment, or a reference to an object of another kind."""
    mode: str
    revision: int
    """A number that no state of another one had."""


class VerticalAutoscalers:
    """Those that change pods. One whose `updateMode` is Off only recommends, and is not among them."""

    def __init__(self) -> None:
        self._found: dict[Key, VerticalAutoscaler] = {}
        self._of_target: dict[Key, dict[Key, VerticalAutoscaler]] = {}
        self._numbers = count(1)

    def put(self, body: Mapping[str, Any]) -> None:
        """Take in one as it is now."""
        spec, key = body.get("spec") or {}, key_of(body)
        mode = (spec.get("updatePolicy") or {}).get("updateMode") or DEFAULT_MODE
        target = spec.get("targetRef") or {}
        named = reference(
            target.get("apiVersion") or "apps/v1", target.get("kind") or "Deployment", target.get("name", "")
        )
        old = self.drop(key)
        if mode == OFF:
            return
        same = old is not None and (old.target, old.mode) == (named, mode)
        number = old.revision if old is not None and same else next(self._numbers)
        self._found[key] = one = VerticalAutoscaler(key[1], named, mode, number)
        self._of_target.setdefault((key[0], named), {})[key] = one

    def drop(self, key: Key) -> VerticalAutoscaler | None:
        """Forget one and return it; None where it was not known."""
        old = self._found.pop(key, None)
        if old is not None:
            target = key[0], old.target
            del self._of_target[target][key]
            if not self._of_target[target]:
                del self._of_target[target]
        return old

    def clear(self) -> None:
        """Forget all."""
        self._found.clear()
        self._of_target.clear()

    def of(self, target: Key) -> VerticalAutoscaler | None:
        """Return the one that changes the pods of a target; None where there is none."""
        return next(iter(self._of_target.get(target, {}).values()), None)
