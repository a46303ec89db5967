"""Watches of kopf: APIs that are installed or removed later, and its memory of objects.

kopf would notice new APIs by watching all CustomResourceDefinitions, a right of the whole cluster. Discovery is open to
every ServiceAccount without a rule of its own, so it is asked now and then, and kopf gets the answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, get_args, get_type_hints

import kopf

from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import KubeError

log = logging.getLogger("rlscaler.watches")

DISCOVERY_SECONDS = 15.0
"""Longest time until a new API is watched. Each check costs one request for each optional API."""


class Insights(Protocol):
    """Used parts of kopf's `Insights`, its knowledge of the cluster."""

    watched_resources: set[kopf.Resource]
    revised: asyncio.Condition
    """Notified after each change of the set."""
    ready_resources: asyncio.Event
    """Set when kopf has looked for the resources of its handlers once."""


def new_insights() -> Insights:
    """Create the object that `kopf.operator(insights=)` accepts.

    kopf exports no name of its class, so the class is read from the signature of that public function.
    """
    kind = get_args(get_type_hints(kopf.operator)["insights"])[0]
    insights: Insights = kind()
    return insights


class OptionalApis:
    """Begins and ends the watches of optional APIs as these are installed and removed."""

    def __init__(
        self,
        kube: Kube,
        optional: tuple[kopf.Resource, ...],
        come: Callable[[kopf.Resource], Awaitable[object]],
        gone: Callable[[kopf.Resource], None],
    ) -> None:
        """`come` reads all objects of a new API among `optional` before its watch begins; `gone` forgets them."""
        self._kube, self._optional, self._come, self._gone = kube, optional, come, gone
        self.insights = new_insights()

    async def run(self) -> None:
        """Look repeatedly until cancelled. The first look follows kopf's own."""
        await self.insights.ready_resources.wait()
        while True:
            await self.look()
            await asyncio.sleep(DISCOVERY_SECONDS)

    async def look(self) -> None:
        """Compare the served APIs with the watched ones. Raises OperatorError where a new API may not be read."""
        for resource in self._optional:
            try:
                served = await self._served(resource)
            except KubeError as error:
                log.warning("whether %s are served is not known: %s", resource.plural, error)
                continue
            watched = self.insights.watched_resources
            if served == (resource in watched):
                continue
            log.info("%s are served now" if served else "%s are not served any more", resource)
            if served:
                await self._come(resource)
            else:
                self._gone(resource)
            async with self.insights.revised:
                (watched.add if served else watched.discard)(resource)
                self.insights.revised.notify_all()

    async def _served(self, resource: kopf.Resource) -> bool:
        """Return True where the API server serves a resource. Raises KubeError."""
        try:
            answer = await self._kube.get(f"/apis/{resource.group}/{resource.version}")
        except KubeError as error:
            if error.status == 404:
                return False
            raise
        return any(served.get("name") == resource.plural for served in answer.get("resources", ()))


class NoDiffBase(kopf.DiffBaseStorage):
    """Storage without former states of objects, as only watch handlers are registered and none compares.

    By default kopf copies each object deeply, several times an event, to compare it with its former state; with a
    thousand policies that is half of the operator's CPU time while pods come and go.
    """

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        """Do nothing."""


class NoProgress(kopf.ProgressStorage):
    """Storage without progress of handlers, as watch handlers have none."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        """Do nothing."""

    def purge(self, **_: Any) -> None:
        """Do nothing."""

    def touch(self, **_: Any) -> None:
        """Do nothing."""

    def clear(self, *, essence: Any) -> Any:
        return essence
