"""Clients of all Prometheuses that policies use."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.answer import Bounds, shorten
from rlscaler_operator.sensing.prometheus import Parameters, Prometheus
from rlscaler_operator.sensing.queries import Query
from rlscaler_operator.sensing.results import Answers, TimedAnswers

log = logging.getLogger("rlscaler.prometheus")

IDLE_SECONDS = 900.0
"""Time without a query after which a client is closed: its policy is gone or its credential was replaced."""


class Sources:
    """One client for each access, made at its first query."""

    def __init__(self, timeout_seconds: float, bounds: Bounds) -> None:
        self._timeout_seconds, self._bounds = timeout_seconds, bounds
        self._clients: dict[Access, Prometheus] = {}
        self._asked: dict[Access, float] = {}
        self._complaints: set[str] = set()

    async def ask(self, access: Access, queries: list[Query]) -> Answers:
        """Ask as `Prometheus.ask` does. A failure is the answer to every query and is logged once; never raises."""
        client = await self._client(access)
        if isinstance(client, MetricsError):
            return dict.fromkeys((query.name for query in queries), client)
        return await client.ask(queries)

    async def ask_own(
        self, access: Access, namespace: str, queries: Sequence[Query], parameters: Parameters, apart: bool = False
    ) -> TimedAnswers:
        """Ask policies' own queries, as `Prometheus.ask_own` does; never raises."""
        client = await self._client(access)
        if isinstance(client, MetricsError):
            return TimedAnswers(dict.fromkeys((query.name for query in queries), client))
        return await client.ask_own(namespace, queries, parameters, apart)

    async def _client(self, access: Access) -> Prometheus | MetricsError:
        if access.refused is not None:
            reason, text = access.refused
            return MetricsError(text, reason)
        self._asked[access] = time.monotonic()
        try:
            if access not in self._clients:
                self._clients[access] = Prometheus(access, self._timeout_seconds, self._bounds)
                # A replaced credential makes a new client, so this is the time to look for idle ones.
                await self._close_idle()
            return self._clients[access]
        except Exception as error:
            text = f"{access.url} cannot be asked: {shorten(str(error))}; correct the URL"
            if text not in self._complaints:
                self._complaints.add(text)
                log.error("%s", text, exc_info=error)
            return MetricsError(text)

    def busy(self, access: Access) -> bool:
        """Return True where a batch would have to wait for the answers to another batch."""
        client = self._clients.get(access)
        return client is not None and client.busy

    async def instant(self, access: Access, promql: str) -> list[dict[str, Any]]:
        """Return the raw series of one query to a Prometheus that was asked before. Raises MetricsError."""
        client = self._clients.get(access)
        if client is None:
            raise MetricsError(f"{access.url} was not reached before")
        return await client.instant(promql)

    async def _close_idle(self) -> None:
        now = time.monotonic()
        idle = [access for access, at in self._asked.items() if now - at > IDLE_SECONDS]
        closed = [client for access in idle if (client := self._clients.pop(access, None)) is not None]
        for access in idle:
            del self._asked[access]
        await asyncio.gather(*(client.close() for client in closed))

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients.values()))
