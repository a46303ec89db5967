"""SIGINT, SIGTERM and SIGHUP end a command in order: its clean-up runs once and is not cut short."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RETRY_SECONDS = 0.05


class Interrupted(BaseException):
    """The user or the system wants the command to end. Not an Exception, so that nothing takes it for a failure."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def ended_by_signal(say: Callable[[str], None], left: str = "") -> Iterator[None]:
    """Exit with the code of the signal that interrupts the block, after a sentence about `left`."""
    try:
        yield
    except Interrupted as interrupt:
        say(f"{interrupt}: everything is stopped{left}")
        sys.exit(interrupt.exit_code)


@contextmanager
def interruptible(again: Callable[[], None]) -> Iterator[None]:
    """Raise Interrupted at the first signal; later ones call `again`, so that they do not cut the clean-up short."""
    seen: list[int] = []
    lost: list[int] = []
    timers: list[Timer] = []

    def handle(number: int, frame: FrameType | None) -> None:
        lost.clear()
        seen.append(number)
        if len(seen) > 1:
            again()
        else:
            raise Interrupted(number)

    def unraisable(ignored: sys.UnraisableHookArgs) -> None:
        # Python ignores every exception in a finalizer or a callback of C, where a signal can arrive as well: it is
        # sent once more.
        if isinstance(ignored.exc_value, Interrupted) and seen:
            lost.append(seen.pop(0))
            timers.append(Timer(RETRY_SECONDS, os.kill, (os.getpid(), lost[0])))
            timers[-1].start()
        else:
            hook(ignored)

    hook, sys.unraisablehook = sys.unraisablehook, unraisable
    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook
    if lost:
        raise Interrupted(lost[0])
