"""Clients of Prometheus: prometheus-api-client in a thread for each, with timeouts and without retries."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests
from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.access import Access, Certificates, tls_context
from rlscaler_operator.sensing.queries import Query
from rlscaler_operator.sensing.results import Answers, HeldRates, group

log = logging.getLogger("rlscaler.prometheus")

IDLE_SECONDS = 900.0
"""Time without a query after which a client is closed: its policy is gone or its credential was replaced."""

BUSY_SECONDS = 2.0
"""Longest time that a policy waits to share the next batch. A healthy Prometheus answers for a thousand policies in
less; behind a slow one a policy must not wait before it counts as blind."""

_STATUS = re.compile(r"HTTP Status Code (\d+)")


class _Certified(HTTPAdapter):
    """TLS with certificates from Secrets. Where authorities are named, no others are trusted."""

    def __init__(self, certificates: Certificates, retry: Retry) -> None:
        self._context = tls_context(certificates)
        super().__init__(max_retries=retry)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, ssl_context=self._context, **options)

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Do nothing: the TLS context verifies."""


class Prometheus:
    """Client of one Prometheus. It never retries a query: the next tick asks again."""

    def __init__(self, access: Access, timeout_seconds: float) -> None:
        session = requests.Session()
        session.trust_env = False
        # The URL was allowed; the target of a redirect was not.
        session.max_redirects = 0
        retry = Retry(total=0, redirect=0)
        self._client = PrometheusConnect(
            url=access.url.rstrip("/"),
            headers={"Authorization": f"Bearer {access.bearer_token}"} if access.bearer_token else None,
            auth=access.basic,
            retry=retry,
            session=session,
        )
        if access.certificates is not None:
            session.mount(self._client.url, _Certified(access.certificates, retry))
        self._timeout_seconds = timeout_seconds
        self._rates: dict[str, HeldRates] = {}
        self._lock, self._asked_at = asyncio.Lock(), float("-inf")
        # Each client has a thread of its own: a few that hang would fill a pool that all share.
        self._thread = ThreadPoolExecutor(1, "prometheus")

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    async def ask(self, queries: list[Query]) -> Answers:
        """Return all answers, or why there are none, within a few timeouts of one query; never raises.

        The client asks one batch at a time: while its thread hangs, no further batch is started.
        """
        deadline = 2 * self._timeout_seconds
        error = MetricsError(f"Prometheus did not answer within {deadline:g} s")
        late: Answers = dict.fromkeys((query.name for query in queries), error)
        try:
            async with asyncio.timeout(deadline):
                await self._lock.acquire()
        except TimeoutError:
            return late
        self._asked_at = time.monotonic()
        thread = asyncio.get_running_loop().run_in_executor(self._thread, self._ask_all, queries)
        thread.add_done_callback(lambda _: self._lock.release())
        done, _ = await asyncio.wait({thread}, timeout=deadline)
        return thread.result() if done else late

    @property
    def busy(self) -> bool:
        """True while it answers a batch that was asked a moment ago: policies that fall due share the next one."""
        return self._lock.locked() and time.monotonic() - self._asked_at < BUSY_SECONDS

    async def instant(self, promql: str) -> list[dict[str, Any]]:
        """Return the series of one query as Prometheus gives them. Raises MetricsError."""
        async with self._lock:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._instant, promql)

    def _instant(self, promql: str) -> list[dict[str, Any]]:
        try:
            return list(self._ask(promql))
        except requests.RequestException as error:
            raise MetricsError(f"Prometheus cannot be reached: {_shorten(error)}") from error

    def _ask_all(self, queries: list[Query]) -> Answers:
        answers: Answers = {}
        unreachable: MetricsError | None = None
        deadline = time.monotonic() + self._timeout_seconds
        for query in queries:
            if unreachable is None and time.monotonic() > deadline:
                unreachable = MetricsError("Prometheus takes too long: the rest of the batch was left out")
            if unreachable is None:
                try:
                    answers[query.name] = group(self._ask(query.promql), query.by, self._rates_of(query))
                    continue
                except requests.TooManyRedirects:
                    unreachable = MetricsError("Prometheus sends elsewhere: name the URL that it redirects to")
                except requests.RequestException as error:
                    unreachable = MetricsError(f"Prometheus cannot be reached: {_shorten(error)}")
                except MetricsError as error:
                    answers[query.name] = error
                    continue
                except Exception as error:
                    answers[query.name] = MetricsError(f"odd answer: {_shorten(error)}", "PrometheusError")
                    continue
            answers[query.name] = unreachable
        return answers

    def _rates_of(self, query: Query) -> HeldRates | None:
        """Return the held rates of a query; None where it asks for no rate."""
        if query.window is None:
            return None
        return self._rates.setdefault(query.name, HeldRates(query.window))

    def _ask(self, promql: str) -> Any:
        parameters = {"timeout": f"{math.ceil(self._timeout_seconds)}s"}
        try:
            result = self._client.custom_query(promql, parameters, timeout=self._timeout_seconds)
        except PrometheusApiClientException as error:
            raise _refusal(error) from error
        except (ValueError, KeyError, TypeError) as error:
            raise MetricsError("the answer is not Prometheus's: check the URL", "PrometheusError") from error
        return result


class Sources:
    """One client for each access, made when it is first asked."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._clients: dict[Access, Prometheus] = {}
        self._asked: dict[Access, float] = {}
        self._complaints: set[str] = set()

    async def ask(self, access: Access, queries: list[Query]) -> Answers:
        """Ask as `Prometheus.ask` does. Any failure is the answer to every query and is logged once; never raises."""
        if access.refused is not None:
            reason, text = access.refused
            return dict.fromkeys((query.name for query in queries), MetricsError(text, reason))
        self._asked[access] = time.monotonic()
        try:
            if access not in self._clients:
                self._close_idle()
                self._clients[access] = Prometheus(access, self._timeout_seconds)
            return await self._clients[access].ask(queries)
        except Exception as error:
            text = f"{access.url} cannot be asked: {_shorten(error)}; correct the URL"
            if text not in self._complaints:
                self._complaints.add(text)
                log.error("%s", text, exc_info=error)
            return dict.fromkeys((query.name for query in queries), MetricsError(text))

    def busy(self, access: Access) -> bool:
        """Return True where a batch would have to wait for the answers to another."""
        client = self._clients.get(access)
        return client is not None and client.busy

    async def instant(self, access: Access, promql: str) -> list[dict[str, Any]]:
        """Return the series of one query to a Prometheus that `ask` has asked before. Raises MetricsError."""
        client = self._clients.get(access)
        if client is None:
            raise MetricsError(f"{access.url} was not reached before")
        return await client.instant(promql)

    def _close_idle(self) -> None:
        now = time.monotonic()
        for access in [access for access, at in self._asked.items() if now - at > IDLE_SECONDS]:
            del self._asked[access]
            if (client := self._clients.pop(access, None)) is not None:
                client.close()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


def _refusal(error: PrometheusApiClientException) -> MetricsError:
    status = _STATUS.match(str(error))
    if status is not None and status[1] in ("401", "403"):
        text = f"Prometheus refused the credential (HTTP {status[1]}): check spec.metrics.prometheus.auth"
        return MetricsError(text, "PrometheusUnauthorized")
    return MetricsError(f"Prometheus refused the query: {_shorten(error)}", "PrometheusError")


def _shorten(error: Exception) -> str:
    """Return the error's text without addresses in memory, which differ each time and would make each message new."""
    text = re.sub(r"<[^<>]* object at 0x[0-9a-f]+>:? ?", "", " ".join(str(error).split()))
    return text if len(text) <= 300 else text[:299] + "…"
