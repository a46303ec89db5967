"""The objects of one kind, kept in memory by one list and one watch, however many pages are open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, CustomObjectsApi

from rlscaler_core.api import GROUP, VERSION
from rlscaler_loadgen.service.watch import Follower

REFUSED_SECONDS = 30.0
"""Pause after a list or watch that the user may not make, or whose kind the cluster does not have."""

FORBIDDEN, MISSING = 403, 404

UNSHOWN = (("metadata", "managedFields"), ("status", "forecaster"), ("status", "stabilization"))
"""Parts of a policy of up to 16 KB each that no page shows."""

Json = dict[str, Any]
Key = tuple[str, str]


class Collection:
    """All objects of a kind in the cluster, or in one namespace.

    :param namespace: the only namespace; None: all of them.
    :param fallback: the namespace that is shown where the user may not list the whole cluster.
    """

    def __init__(
        self, api: Callable[[], ApiClient], plural: str, namespace: str | None = None, fallback: str | None = None
    ) -> None:
        self._api, self.plural, self.namespace, self._fallback = api, plural, namespace, fallback
        self.objects: dict[Key, Json] = {}
        self.version = 0
        """Grows with each change."""
        self.listed = asyncio.Event()
        """Set when the objects are known, or the reason why they are not."""
        self.trouble = ""
        """Why the objects are unknown or out of date; empty = they are as in the cluster."""

    async def follow(self) -> None:
        """Keep up with the cluster until cancelled."""
        await Follower(self.plural, self._call, _nothing, self._set, self._change).run()

    async def _call(self, **arguments: Any) -> aiohttp.ClientResponse:
        """Send a list or a watch. A refusal is the trouble that pages show, and is repeated after a pause only."""
        try:
            response = await self._request(**arguments)
        except Exception as error:
            self._fail(f"the API server does not answer: {str(error) or type(error).__name__}")
            raise
        if response.status == FORBIDDEN and self.namespace is None and self._fallback is not None:
            response.release()
            self.namespace = self._fallback
            return await self._call(**arguments)
        if response.status != 200:
            self._fail(f"{self.plural} cannot be listed: {_message(await response.read(), response.status)}")
            if response.status in (FORBIDDEN, MISSING):
                await asyncio.sleep(REFUSED_SECONDS)
        return response

    async def _request(self, **arguments: Any) -> aiohttp.ClientResponse:
        api, kind = CustomObjectsApi(self._api()), {"group": GROUP, "version": VERSION, "plural": self.plural}
        if self.namespace is None:
            answer = await api.list_cluster_custom_object_without_preload_content(**kind, **arguments)
        else:
            kind["namespace"] = self.namespace
            answer = await api.list_namespaced_custom_object_without_preload_content(**kind, **arguments)
        assert isinstance(answer, aiohttp.ClientResponse)
        return answer

    def _fail(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble, self.version = trouble, self.version + 1
        self.listed.set()

    def _set(self, bodies: list[Json]) -> None:
        self.objects = {_key(body): _shown(body) for body in bodies}
        self.trouble, self.version = "", self.version + 1
        self.listed.set()

    def _change(self, body: Json, deleted: bool) -> None:
        if deleted:
            self.objects.pop(_key(body), None)
        else:
            self.objects[_key(body)] = _shown(body)
        self.version += 1


async def _nothing() -> Json:
    return {}


def _key(body: Json) -> Key:
    metadata = body["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _shown(body: Json) -> Json:
    for part, name in UNSHOWN:
        if isinstance(body.get(part), dict):
            body[part].pop(name, None)
    return body


def _message(body: bytes, status: int) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return f"the API server answers {status}"
