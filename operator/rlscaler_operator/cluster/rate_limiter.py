"""A bounded number of requests at once, in which replicas go before what people read.

A step of the load at a thousand policies asks for a thousand scale writes and as many Events and statuses. First come,
first served would let the last scale write wait for all of them.
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
"""However long the API server asks to wait: by then the next tick has decided anew."""


CROWD = 4
"""Scale writes that wait for each place before there is a crowd: half a second of work, or more."""


class Lane(IntEnum):
    """Who goes first."""

    SCALE = 0
    REPORT = 1


class Lanes:
    """At most `size` requests at once. Those of a lower lane wait until no higher one waits."""

    def __init__(self, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size, self._free, self._clock = size, size, clock
        self._scaling = 0
        """Scale writes that wait."""
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._until = float("-inf")
        self._held = 0

    @property
    def crowded(self) -> bool:
        """Do so many scale writes wait that those who ask now wait for seconds?"""
        return self._scaling > CROWD * self._size

    @contextlib.contextmanager
    def hold_reports(self) -> Iterator[None]:
        """Send no further report within: scale writes are about to be asked for, a few at a time."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            self._hand_on()

    @contextlib.asynccontextmanager
    async def enter(self, lane: Lane) -> AsyncIterator[None]:
        """Hold one of the places."""
        await self._acquire(lane)
        try:
            if (pause := self._until - self._clock()) > 0:
                await asyncio.sleep(pause)
            yield
        finally:
            self._release()

    def back_off(self, seconds: float) -> None:
        """The API server asks to be left alone for some time: nothing new is sent before."""
        self._until = max(self._until, self._clock() + min(seconds, LONGEST_PAUSE_SECONDS))

    async def _acquire(self, lane: Lane) -> None:
        if self._free > 0 and not (lane is Lane.REPORT and self._held):
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (lane, next(self._numbers), turn))
        self._scaling += lane is Lane.SCALE
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()
            raise
        finally:
            self._scaling -= lane is Lane.SCALE

    def _release(self) -> None:
        self._free += 1
        self._hand_on()

    def _hand_on(self) -> None:
        """Hand free places to who is next; those that gave up are passed over."""
        while self._free > 0 and self._waiting:
            lane, _, turn = self._waiting[0]
            if lane is Lane.REPORT and self._held:
                return
            heapq.heappop(self._waiting)
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
