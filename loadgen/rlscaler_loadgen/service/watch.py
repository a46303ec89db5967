"""List, then watch, for ever: one kind of object of the Kubernetes API as it changes.

The stream survives faults of a control plane: a watch that the server ends is resumed, `410 Gone` and a broken
connection lead to a fresh list, an absent API server is called again with growing pauses. While it is away the last
known objects stay in force.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import tenacity

logger = logging.getLogger(__name__)

Object = dict[str, Any]
Call = Callable[..., Awaitable[aiohttp.ClientResponse]]

WATCH_SECONDS = 300
"""Seconds that one watch may last; the server ends it then, and it is resumed."""
LIST_TIMEOUT_SECONDS = 30.0
PAUSE_SECONDS = (0.2, 5.0)
"""First and longest pause between attempts to list."""


class ApiError(Exception):
    """The API server answered with an error status."""

    def __init__(self, what: str, status: int, message: str) -> None:
        super().__init__(f"{what}: the API server answered {status}: {message.strip()[:200]}")
        self.status = status


class GoneError(Exception):
    """The watch's resourceVersion is too old: list again."""


TRANSIENT = (ApiError, aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError)
"""Everything that time may heal; a malformed answer (ValueError) comes from a server that is going down."""


@dataclass
class Follower:
    """Informs its owner of all objects that `call` lists.

    :param prepare: returns the call's arguments, anew before each list (a label selector, for example).
    :param on_list: called with all existing objects; any other one is gone.
    :param on_change: called with one object, and whether it was deleted.
    """

    what: str
    call: Call
    prepare: Callable[[], Awaitable[dict[str, Any]]]
    on_list: Callable[[list[Object]], None]
    on_change: Callable[[Object, bool], None]

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            arguments, version = await self._list_patiently()
            try:
                while True:
                    version = await self._watch(arguments, version)
            except GoneError:
                logger.info("%s: the watch is out of date; listing again", self.what)
            except TRANSIENT as error:
                logger.warning("%s: watch interrupted (%s); listing again", self.what, error)
                await asyncio.sleep(PAUSE_SECONDS[0])

    async def _list_patiently(self) -> tuple[dict[str, Any], str]:
        def report(state: tenacity.RetryCallState) -> None:
            level = logging.WARNING if state.attempt_number == 1 else logging.INFO
            error = state.outcome.exception() if state.outcome else None
            logger.log(level, "%s: %s; asking again until it answers", self.what, error)

        first, longest = PAUSE_SECONDS
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TRANSIENT),
            wait=tenacity.wait_exponential(multiplier=first, max=longest) + tenacity.wait_random(0, first),
            before_sleep=report,
        )
        result: tuple[dict[str, Any], str] = await retrying(self._list)
        if retrying.statistics["attempt_number"] > 1:
            logger.warning("%s: known again", self.what)
        return result

    async def _list(self) -> tuple[dict[str, Any], str]:
        arguments = await self.prepare()
        response = await self.call(**arguments, _request_timeout=LIST_TIMEOUT_SECONDS)
        async with response:
            body = await read_json(response, self.what)
        self.on_list(body.get("items") or [])
        return arguments, body["metadata"]["resourceVersion"]

    async def _watch(self, arguments: dict[str, Any], version: str) -> str:
        """One watch to its end; the resourceVersion to go on from."""
        response = await self.call(
            **arguments,
            watch=True,
            resource_version=version,
            allow_watch_bookmarks=True,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=WATCH_SECONDS + LIST_TIMEOUT_SECONDS,
        )
        async with response:
            async for event in self._events(response):
                if event["type"] == "ERROR":
                    status = event["object"]
                    if status.get("code") == 410:
                        raise GoneError
                    raise ApiError(self.what, status.get("code", 0), status.get("message", ""))
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self.on_change(event["object"], event["type"] == "DELETED")
        return version

    async def _events(self, response: aiohttp.ClientResponse) -> AsyncIterator[Object]:
        if response.status == 410:
            raise GoneError
        if response.status != 200:
            raise ApiError(self.what, response.status, await response.text())
        while line := await response.content.readline():
            yield json.loads(line)


async def read_json(response: aiohttp.ClientResponse, what: str) -> Object:
    """The body of a 200 answer; raises ApiError for any other."""
    if response.status != 200:
        raise ApiError(what, response.status, await response.text())
    return dict(await response.json(content_type=None))
