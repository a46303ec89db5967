"""APIs that may be installed while the operator runs, and removed again: KEDA's and the Gateway API.

kopf would notice them by watching all CustomResourceDefinitions, a right of the whole cluster. Discovery says the same
to every ServiceAccount without a rule of its own, so it is asked now and then, and kopf is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import kopf
from kopf._cogs.structs.references import Insights  # the type of `kopf.operator(insights=)`; kopf exports no other name

from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import KubeError

log = logging.getLogger("rlscaler.apis")

LOOK_SECONDS = 15.0
"""Longest time until an API that was installed is watched. One request for each."""

VERBS = frozenset({"get", "list", "watch", "patch"})

SCALED_OBJECTS = kopf.Resource(
    "keda.sh", "v1alpha1", "scaledobjects", kind="ScaledObject", namespaced=True, verbs=VERBS
)
HTTP_ROUTES = kopf.Resource(
    "gateway.networking.k8s.io", "v1", "httproutes", kind="HTTPRoute", namespaced=True, verbs=VERBS
)
OPTIONAL = (SCALED_OBJECTS, HTTP_ROUTES)


class OptionalApis:
    """Begins and ends the watches of optional APIs as they come and go."""

    def __init__(
        self,
        kube: Kube,
        come: Callable[[kopf.Resource], Awaitable[None]],
        gone: Callable[[kopf.Resource], None],
    ) -> None:
        """`come` reads all objects of a new one, before its watch begins; `gone` forgets them."""
        self._kube, self._come, self._gone = kube, come, gone
        self.insights = Insights()
        """What kopf watches."""

    async def run(self) -> None:
        """Until cancelled; from when kopf has looked for itself."""
        await self.insights.ready_resources.wait()
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Compare what is served with what is watched once. Raises OperatorError where a new one may not be read."""
        for resource in OPTIONAL:
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
        """Raises KubeError."""
        try:
            answer = await self._kube.get(f"/apis/{resource.group}/{resource.version}")
        except KubeError as error:
            if error.status == 404:
                return False
            raise
        return any(found.get("name") == resource.plural for found in answer.get("resources", ()))
