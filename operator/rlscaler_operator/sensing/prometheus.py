"""Client of one Prometheus: POST with bounded answers, timeouts and no retries."""

from __future__ import annotations

import asyncio
import math
import os
import re
import ssl
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

import aiohttp
from aiohttp import ClientError, ClientTimeout

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.access import Access, tls_context
from rlscaler_operator.sensing.answer import (
    OWN,
    SHARED,
    SLOW,
    Bounds,
    divisible,
    refusal,
    series_of,
    shorten,
    too_large,
)
from rlscaler_operator.sensing.queries import NUMBER, Query, together
from rlscaler_operator.sensing.results import Answers, HeldRates, Key, Reading, TimedAnswers, group

BUSY_SECONDS = 2.0
"""Longest time that a policy waits to share the next batch. A healthy Prometheus answers for a thousand policies in
less; behind a slow one a policy must not wait before it counts as blind."""

AT_ONCE = 3
"""Shared queries under way at the same time, after the first one of a batch."""

LIFE_SECONDS = 1.0
"""Longest wait for the answer to a trivial query, after another one was not answered."""

OWN_AT_ONCE = 8
"""Requests with own queries of one namespace under way at the same time, and as many with queries that go apart."""

ERROR_BYTES = 16 * 2**10
"""Most bytes of a refusal that are read."""

THREAD_BYTES = 64 * 2**10
"""Size above which an answer is parsed in a thread: the event loop would stand still."""

POST_REFUSED = (405, 501)
"""HTTP statuses of a server that accepts queries by GET only."""

WHOLE = {"partial_response": "false", "deny_partial_response": "1"}
"""Parameters of Thanos and of VictoriaMetrics that ask for an error in place of a part; Prometheus ignores them."""


ONE_IS_THE_REASON = ("PrometheusError", "AnswerTooLarge")
"""Reasons of a failed request with several own queries for which one of them may be to blame."""

Parameters = tuple[tuple[str, str], ...]
"""Names and values in a URL."""

T = TypeVar("T")


class Prometheus:
    """Client of one Prometheus. A failed query is not retried: the next tick asks again."""

    def __init__(self, access: Access, timeout_seconds: float, bounds: Bounds = SHARED) -> None:
        self._url, self._bounds = access.url.rstrip("/") + "/api/v1/query", bounds
        self._headers = {"Accept-Encoding": "identity", **dict(access.headers)}
        if access.bearer_token:
            self._headers["Authorization"] = f"Bearer {access.bearer_token}"
        self._auth = aiohttp.BasicAuth(*access.basic, encoding="utf-8") if access.basic is not None else None
        self._ssl = tls_context(access.certificates) if access.certificates is not None else True
        self._timeout_seconds = timeout_seconds
        self._method = "POST"
        self._opened: aiohttp.ClientSession | None = None
        self._rates: dict[str, HeldRates] = {}
        self._lock, self._asked_at = asyncio.Lock(), float("-inf")
        self._places: dict[tuple[str, bool], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(OWN_AT_ONCE))

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def ask(self, queries: list[Query]) -> Answers:
        """Return all answers, or errors in their place, within a few timeouts of one query; never raises.

        The client asks one batch at a time.
        """
        try:
            async with asyncio.timeout(2 * self._timeout_seconds):
                await self._lock.acquire()
        except TimeoutError:
            error = MetricsError(f"Prometheus did not answer within {2 * self._timeout_seconds:g} s")
            return dict.fromkeys((query.name for query in queries), error)
        self._asked_at = time.monotonic()
        try:
            return await self._ask_all(queries)
        finally:
            self._lock.release()

    async def ask_own(
        self, namespace: str, queries: Sequence[Query], parameters: Parameters, apart: bool = False
    ) -> TimedAnswers:
        """Return the answers to own queries of policies of one namespace, or errors in their place; never raises.

        They are sent as one query, and one by one where that is refused or too large, since one of them is the reason.
        A namespace has a few places, so that its queries delay no other namespace's, and as many for queries that go
        `apart`. `parameters` are sent with each query.
        """
        async with self._places[namespace, apart]:
            began = time.monotonic()
            answers = await self._own_answers(queries, parameters)
            return TimedAnswers(answers, time.monotonic() - began)

    async def _own_answers(self, queries: Sequence[Query], parameters: Parameters) -> Answers:
        if len(queries) > 1:
            try:
                return await self._together(queries, parameters)
            except Exception as error:
                if (reason := _reason(error)).reason not in ONE_IS_THE_REASON:
                    return dict.fromkeys((query.name for query in queries), reason)
        answers = await asyncio.gather(*(self._own(query, parameters) for query in queries))
        return {query.name: answer for query, answer in zip(queries, answers, strict=True)}

    async def _own(self, query: Query, parameters: Parameters) -> dict[Key, Reading] | MetricsError:
        try:
            return await self._readings(query, OWN, parameters)
        except Exception as error:
            return _reason(error)

    async def _together(self, queries: Sequence[Query], parameters: Parameters) -> Answers:
        """Send several own queries as one. Raises any error of request and answer."""
        bounds = Bounds(OWN.size * len(queries), OWN.series * len(queries))
        body = await self._answer(together(queries), bounds, parameters)
        parts: list[list[dict[str, Any]]] = [[] for _ in queries]
        for series in await _parsed(len(body), lambda: series_of(body, bounds)):
            parts[int(series["metric"][NUMBER])].append(series)
        return {query.name: group(part, query.by) for query, part in zip(queries, parts, strict=True)}

    @property
    def busy(self) -> bool:
        """True while Prometheus answers a batch of a moment ago: policies that fall due share the next batch."""
        return self._lock.locked() and time.monotonic() - self._asked_at < BUSY_SECONDS

    async def instant(self, promql: str) -> list[dict[str, Any]]:
        """Return the raw series of one query. Raises MetricsError."""
        async with self._lock:
            try:
                body = await self._answer(promql, self._bounds)
                return await _parsed(len(body), lambda: series_of(body, self._bounds))
            except Exception as error:
                raise _reason(error) from error

    async def _ask_all(self, queries: list[Query]) -> Answers:
        answers: Answers = {}
        unreachable: MetricsError | None = None
        began, waiting = time.monotonic(), iter(queries)
        deadline = began + self._timeout_seconds

        async def ask_next(most: int) -> None:
            nonlocal unreachable, deadline
            for query in islice(waiting, most):
                # Past the deadline the rest of the batch is left out: its policies must not wait for their decision.
                if unreachable is None and time.monotonic() > deadline:
                    unreachable = MetricsError("Prometheus takes too long: the rest of the batch was left out")
                if unreachable is not None:
                    answers[query.name] = unreachable
                    continue
                try:
                    answers[query.name] = await self._readings(query, self._bounds)
                except Exception as error:
                    # A server that cannot be reached answers no further query either; others concern themselves.
                    reason = _reason(error)
                    if isinstance(error, TimeoutError) and await self._lives(answers):
                        text = f"Prometheus did not answer this query within {self._timeout_seconds:g} s"
                        reason = divisible(MetricsError(text, SLOW))
                        # The others have their turn nevertheless, once: it may be one policy that makes it slow.
                        deadline = began + 2 * self._timeout_seconds
                    elif reason.reason == MetricsError.reason:
                        unreachable = reason
                    answers[query.name] = reason
                await asyncio.sleep(0)

        # The first one alone says whether anybody answers; then a slow one holds up one of a few lanes only.
        await ask_next(1)
        await asyncio.gather(*(ask_next(len(queries)) for _ in range(AT_ONCE)))
        return answers

    async def _lives(self, answers: Answers) -> bool:
        """Return True where the server answered another query of the batch, or answers a trivial one."""
        if any(not isinstance(answer, MetricsError) for answer in answers.values()):
            return True
        try:
            async with asyncio.timeout(min(LIFE_SECONDS, self._timeout_seconds)):
                await self._answer("vector(1)", OWN)
        except Exception:
            return False
        return True

    async def _readings(self, query: Query, bounds: Bounds, parameters: Parameters = ()) -> dict[Key, Reading]:
        """Return the readings of one query. Raises any error of request and answer."""
        body = await self._answer(query.promql, bounds, parameters)
        rates = None if query.window is None else self._rates.setdefault(query.name, HeldRates(query.window))
        return await _parsed(len(body), lambda: group(series_of(body, bounds), query.by, rates))

    async def _answer(self, promql: str, bounds: Bounds, parameters: Parameters = ()) -> bytes:
        limits = {"timeout": f"{math.ceil(self._timeout_seconds)}s", "limit": str(bounds.series)}
        form = {"query": promql} | limits | WHOLE
        status, body = await self._send(form, parameters, bounds)
        if status in POST_REFUSED and self._method == "POST":
            self._method = "GET"
            status, body = await self._send(form, parameters, bounds)
        if status != 200:
            raise refusal(status, body)
        return body

    async def _send(self, form: Mapping[str, str], parameters: Parameters, bounds: Bounds) -> tuple[int, bytes]:
        """Send a query and return HTTP status and body. Raises MetricsError where the body is too large."""
        post = self._method == "POST"
        # The parameters go into the URL with either method: a proxy looks for them there.
        sent: dict[str, Any] = {
            "data": form if post else None,
            "params": {**({} if post else form), **dict(parameters)},
        }
        async with self._session().request(self._method, self._url, allow_redirects=False, **sent) as answer:
            encoding = answer.headers.get("Content-Encoding", "identity").lower()
            if answer.status == 200 and encoding != "identity":
                text = f"the answer is compressed ({shorten(encoding)}) although Accept-Encoding is identity"
                raise MetricsError(f"{text}: turn compression off in the server, or in a proxy", "PrometheusError")
            limit = bounds.size if answer.status == 200 else ERROR_BYTES
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > limit:
                    # The rest is not read: the connection goes with it.
                    answer.close()
                    if answer.status == 200:
                        raise too_large(bounds, bounds.size_in_words)
                    break
            return answer.status, bytes(body)

    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._ssl, limit=0),
                timeout=ClientTimeout(total=self._timeout_seconds),
                headers=self._headers,
                auth=self._auth,
                cookie_jar=aiohttp.DummyCookieJar(),
                # The limit is one of memory: an answer that is compressed against the request is not unpacked.
                auto_decompress=False,
            )
        return self._opened


async def _parsed(size: int, parse: Callable[[], T]) -> T:
    """Return the result of parsing an answer of `size` bytes; a large one is parsed in a thread."""
    return await asyncio.to_thread(parse) if size > THREAD_BYTES else parse()


def _reason(error: Exception) -> MetricsError:
    """Return any failure of a request as MetricsError."""
    if isinstance(error, MetricsError):
        return error
    if isinstance(error, TimeoutError):
        return MetricsError("Prometheus cannot be reached: it did not answer in time")
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return MetricsError(f"Prometheus cannot be reached: {error.host}:{error.port}: {_connecting(error.os_error)}")
    if isinstance(error, (ClientError, OSError)):
        return MetricsError(f"Prometheus cannot be reached: {_without_addresses(error)}")
    return MetricsError(f"odd answer: {_without_addresses(error)}", "PrometheusError")


def _connecting(error: OSError) -> str:
    """Return the reason of a failed connection."""
    # Errors of TLS have numbers of their own, for which strerror returns a wrong text.
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}): name its authority"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason}"
    return os.strerror(error.errno or 0)


def _without_addresses(error: Exception) -> str:
    """Return the error's text without memory addresses, which differ each time and would make each message new."""
    return shorten(re.sub(r"<[^<>]* object at 0x[0-9a-f]+>:? ?", "", str(error)))
