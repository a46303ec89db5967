"""What the services of a namespace have together, at each moment, by watching the API server directly."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rlscaler_dev.cluster.kube import Json, KubeClient
from rlscaler_dev.cluster.watch import Watches

SUFFIX = "-gpu"
"""Of the Deployment of a service."""


@dataclass
class Watched:
    """What is checked at each change, and what was seen since it is."""

    total: float
    """Replicas that all services may have together."""
    each: dict[str, int]
    """Replicas that single services may have."""
    moments: list[dict[str, int]] = field(default_factory=list)
    """Replicas by service, at the beginning and after each change."""

    @property
    def highest(self) -> int:
        """The most replicas that all services had together."""
        return max(sum(moment.values()) for moment in self.moments)

    def lowest(self, service: str) -> int:
        """The fewest replicas that a service had while it was there."""
        return min(moment[service] for moment in self.moments if service in moment)

    def broken(self) -> list[dict[str, int]]:
        """The moments at which somebody had too much."""
        return [moment for moment in self.moments if self._too_much(moment)]

    def _too_much(self, moment: dict[str, int]) -> bool:
        above = any(moment.get(service, 0) > most for service, most in self.each.items())
        return above or sum(moment.values()) > self.total


class Overseer(Watches):
    """Follows `spec.replicas` of the Deployments of a namespace. Use it as a context manager.

    The API server tells the changes of a collection in the order in which they were made, so nothing is seen that never
    was.
    """

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._own = KubeClient.from_kubeconfig(kubeconfig)
        super().__init__(self._own)
        self._now: dict[str, int] = {}
        self._watched: list[Watched] = []
        self._follow("apps/v1", "Deployment", self._deployment, self._now.clear, namespace)

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._own.close()

    @property
    def now(self) -> dict[str, int]:
        """Replicas by service, as seen last."""
        with self._lock:
            return dict(self._now)

    def have(self, **replicas: int) -> bool:
        """Whether these services have so many replicas."""
        now = self.now
        return all(now.get(service) == number for service, number in replicas.items())

    @contextmanager
    def bound(self, total: float = math.inf, **each: int) -> Iterator[Watched]:
        """At no moment of the block may the services have more than that.

        Raises AssertionError at its end, with each moment at which they had.
        """
        watched = Watched(total, each)
        with self._lock:
            watched.moments.append(dict(self._now))
            self._watched.append(watched)
        try:
            yield watched
        finally:
            with self._lock:
                self._watched.remove(watched)
        assert not watched.broken(), f"more than {total:g} together or {each}: {watched.broken()}"

    def _deployment(self, event: str, deployment: Json) -> None:
        service = deployment["metadata"]["name"].removesuffix(SUFFIX)
        if event == "DELETED":
            self._now.pop(service, None)
        else:
            self._now[service] = int(deployment["spec"]["replicas"])

    def _changed(self) -> None:
        for watched in self._watched:
            if self._now != watched.moments[-1]:
                watched.moments.append(dict(self._now))
