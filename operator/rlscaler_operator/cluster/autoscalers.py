"""HorizontalPodAutoscalers and ScaledObjects, by the targets that they scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rlscaler_operator.cluster.bodies import Key, key_of, referenced
from rlscaler_operator.cluster.keda_objects import lacks_metrics_of, policies_of


@dataclass(slots=True)
class Autoscaler:
    """A HorizontalPodAutoscaler or a ScaledObject."""

    kind: str
    name: str
    target: str
    """Name of the scaled Deployment, or a reference to an object of another kind."""
    policies: frozenset[str] = frozenset()
    """Policies whose recommendations a ScaledObject takes by the external scaler; empty for an HPA."""
    made_for: str = ""
    """Name of the ScaledObject for which KEDA made this HPA and whose metrics the HPA lacks; empty: there is none."""
    revision: int = field(default=0, compare=False)
    """Number that is unique among all states of all autoscalers."""


class Autoscalers:
    """The watched autoscalers. Only the watch handlers call `put` and `drop`; all other code reads."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str, str], Autoscaler] = {}
        """Autoscalers by (kind, namespace, name)."""
        self._of_target: dict[Key, list[Autoscaler]] = {}
        self._numbers = count(1)

    def put(self, kind: str, body: Mapping[str, Any]) -> None:
        key = key_of(body)
        old = self._by_name.get((kind, *key))
        self.drop(kind, key)
        target = referenced(body.get("spec", {}).get("scaleTargetRef", {}))
        autoscaler = Autoscaler(kind, key[1], target, policies_of(body), lacks_metrics_of(body))
        autoscaler.revision = old.revision if old is not None and old == autoscaler else next(self._numbers)
        self._by_name[kind, *key] = autoscaler
        self._of_target.setdefault((key[0], autoscaler.target), []).append(autoscaler)

    def drop(self, kind: str, key: Key) -> None:
        autoscaler = self._by_name.pop((kind, *key), None)
        if autoscaler is not None:
            scalers = self._of_target[key[0], autoscaler.target]
            scalers.remove(autoscaler)
            if not scalers:
                del self._of_target[key[0], autoscaler.target]

    def of(self, target: Key) -> Autoscaler | None:
        """Return the HorizontalPodAutoscaler or ScaledObject that scales a target; None where there is none."""
        scalers = self.all_of(target)
        # A ScaledObject goes first: the HorizontalPodAutoscaler beside it is KEDA's, which would make it again.
        return next((scaler for scaler in scalers if scaler.kind == "ScaledObject"), next(iter(scalers), None))

    def all_of(self, target: Key) -> Sequence[Autoscaler]:
        """Return all autoscalers of a target."""
        return self._of_target.get(target, ())

    def known(self, kind: str) -> set[Key]:
        """Return the names of the known autoscalers of a kind."""
        return {(namespace, name) for known, namespace, name in self._by_name if known == kind}
