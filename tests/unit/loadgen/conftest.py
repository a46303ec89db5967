"""An event loop whose clock jumps to the next timer, so that minutes of queueing take milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest


class _NoWait(selectors.DefaultSelector):  # type: ignore[misc, valid-type]
    loop: JumpingLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """Nothing is waited for; pure asyncio code sees time pass as usual."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _NoWait()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


@pytest.fixture
def in_fake_time() -> Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]:
    """Runs a coroutine function on a jumping clock that starts at 0."""

    def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            return runner.run(main())

    return run
