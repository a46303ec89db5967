"""Temporary overrides of a scoring policy by a person: a pod on a node, or no further pods on a node."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST = 1000
"""Most overrides in force."""

LONGEST_SECONDS = 7 * 86_400.0


class Override(BaseModel):
    """The body of `PUT /suggestions`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: str = ""
    pod: str = ""
    """A pod of the namespace, by name; empty = all pods."""
    node: str = Field(min_length=1)
    avoid: bool = False
    """The node comes last, not first."""
    seconds: float = Field(ge=0, le=LONGEST_SECONDS, allow_inf_nan=False)
    """Seconds until the override expires; 0 removes it."""

    @model_validator(mode="after")
    def _whole(self) -> Override:
        if bool(self.pod) != bool(self.namespace):
            raise ValueError("pod and namespace belong together: name both or neither")
        if not self.pod and not self.avoid:
            raise ValueError("without a pod only `avoid: true` is possible: no node is the best for all pods")
        return self


class Overrides:
    """Overrides in force, in memory: a restarted server has none."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._held: dict[tuple[str, str, str], tuple[Override, float]] = {}

    def put(self, override: Override) -> None:
        """Set, replace or (0 seconds) end an override. Raises ValueError where there are too many."""
        self._expire()
        key = (override.namespace, override.pod, override.node)
        # Taken out even where it comes again, since the last one is the newest.
        self._held.pop(key, None)
        if not override.seconds:
            return
        if len(self._held) >= MOST:
            raise ValueError(f"{MOST} overrides are in force: end one with seconds 0 first")
        self._held[key] = override, self._clock() + override.seconds

    def of(self, namespace: str, pod: str) -> tuple[str | None, set[str]]:
        """The node that the pod is wanted on, the newest where several are, and the nodes to avoid."""
        self._expire()
        mine = [override for override, _ in self._held.values() if override.pod in ("", pod)]
        mine = [override for override in mine if override.namespace in ("", namespace)]
        wanted = [override.node for override in mine if not override.avoid]
        return wanted[-1] if wanted else None, {override.node for override in mine if override.avoid}

    def shown(self) -> list[dict[str, Any]]:
        """Those in force, with the seconds that they have left."""
        self._expire()
        now = self._clock()
        return [override.model_dump() | {"seconds": round(until - now, 1)} for override, until in self._held.values()]

    def _expire(self) -> None:
        now = self._clock()
        self._held = {key: held for key, held in self._held.items() if held[1] > now}
