"""The NodeScoringPolicies of the cluster, in the order in which they count. Methods that take objects are callbacks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from rlscaler_core.api.exceptions import InvalidNodeScoringError
from rlscaler_core.api.node_scoring import NodeScoringPolicy, parse_node_scoring
from rlscaler_scheduler.objects import Json

log = logging.getLogger("rlscaler.scheduler")


class ScoringPolicies:
    """The NodeScoringPolicies of the API server. An unusable one does not act, and is shown with the reason."""

    def __init__(self) -> None:
        self.listed = False
        """Whether it is known which there are; also where the cluster does not have the kind."""
        self._held: dict[str, NodeScoringPolicy] = {}
        self._refused: dict[str, str] = {}
        """Name -> why the object does not act."""
        self._order: list[NodeScoringPolicy] = []

    def set(self, items: Sequence[Json]) -> None:
        """All that exist."""
        self._held.clear()
        self._refused.clear()
        for item in items:
            self._take(item)
        self._sort()
        self.listed = True

    def change(self, item: Json, deleted: bool) -> None:
        """One of them as it is now."""
        name = item["metadata"]["name"]
        self._held.pop(name, None)
        self._refused.pop(name, None)
        if not deleted:
            self._take(item)
        self._sort()

    def of(self, namespace: Mapping[str, str], pod: Mapping[str, str]) -> NodeScoringPolicy | None:
        """The one that acts for a pod with the labels `pod`, in a namespace with the labels `namespace`."""
        return next((policy for policy in self._order if policy.spec.selects(namespace, pod)), None)

    def shown(self) -> list[dict[str, Any]]:
        """As JSON: those that act in their order, then those that cannot."""
        acting = [{"name": policy.metadata.name, "priority": policy.spec.priority} for policy in self._order]
        return [*acting, *({"name": name, "error": why} for name, why in sorted(self._refused.items()))]

    def _take(self, item: Json) -> None:
        name = item["metadata"]["name"]
        try:
            self._held[name] = parse_node_scoring(item)
        except InvalidNodeScoringError as error:
            self._refused[name] = str(error)
            log.warning("NodeScoringPolicy %s does not act: %s", name, error)

    def _sort(self) -> None:
        self._order = sorted(self._held.values(), key=lambda policy: (-policy.spec.priority, policy.metadata.name))
