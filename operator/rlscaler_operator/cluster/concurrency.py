"""Limit of concurrent requests; writes of replicas go first.

A step of the load at a thousand policies asks for a thousand scale writes and as many Events and statuses. In the order
of arrival, the last scale write would wait for all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from enum import IntEnum

LONGEST_PAUSE_SECONDS = 10.0
"""Longest pause that the API server can ask for: after this time the next tick has decided anew."""

CROWD = 4
"""Waiting scale writes per slot above which the limiter is crowded: half a second of work, or more."""


class Priority(IntEnum):
    """Priority of a request; the lower number goes first."""

    SCALE = 0
    REPORT = 1


class ConcurrencyLimiter:
    """Admits at most `size` requests at once. A request waits while one of a higher priority waits."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size, self._free, self._clock = size, size, clock
        self._scaling = 0
        """Number of scale writes that wait."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        """Heap of (priority, number in the order of arrival, future that is set when the slot is free)."""
        self._numbers = itertools.count()
        self._until = float("-inf")
        self._held = 0
        """Number of open `hold_reports` blocks."""

    @property
    def crowded(self) -> bool:
        """True while so many scale writes wait that a further one waits for seconds."""
        return self._scaling > CROWD * self._size

    @contextlib.contextmanager
    def hold_reports(self) -> Iterator[None]:
        """Start no report inside the block, in which scale writes are requested a few at a time."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._hand_on()

    @contextlib.asynccontextmanager
    async def slot(self, priority: Priority) -> AsyncIterator[None]:
        """Wait for a slot and for the end of a pause requested by the API server; hold the slot inside the block."""
        await self._acquire(priority)
        try:
            if (pause := self._until - self._clock()) > 0:
                await asyncio.sleep(pause)
            yield
        finally:
            self._release()

    def back_off(self, seconds: float) -> None:
        """Start no request for this time, as the API server asked (429 with Retry-After)."""
        self._until = max(self._until, self._clock() + min(seconds, LONGEST_PAUSE_SECONDS))

    async def _acquire(self, priority: Priority) -> None:
        # A report takes no free slot while scale writes are announced (`hold_reports`).
        if self._free > 0 and not (priority is Priority.REPORT and self._held):
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._numbers), turn))
        self._scaling += priority is Priority.SCALE
        try:
            await turn
        except asyncio.CancelledError:
            # The slot was handed over at the moment of the cancellation: hand it on.
            if turn.done() and not turn.cancelled():
                self._release()
            raise
        finally:
            self._scaling -= priority is Priority.SCALE

    def _release(self) -> None:
        self._free += 1
        self._hand_on()

    def _hand_on(self) -> None:
        """Hand free slots to the next requests; cancelled requests are skipped."""
        while self._free > 0 and self._waiting:
            priority, _, turn = self._waiting[0]
            if priority is Priority.REPORT and self._held:
                return
            heapq.heappop(self._waiting)
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
