"""An event loop whose clock jumps to the next timer, so that hours of queueing take seconds.

For tests and benchmarks: the code of the emulated service runs unchanged, only nothing is waited for.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class _NoWait(selectors.SelectSelector):
    loop: JumpingLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """Begins at 0 and goes to the next timer whenever nothing else is to be done."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _NoWait()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now
