"""Waiting for conditions with a deadline."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tenacity

from rlscaler_dev.exceptions import ApiError


def until(look: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until a function returns something true and return that; the last value says why it did not."""
    seen: list[Any] = [None]

    def attempt() -> Any:
        seen[0] = look()
        return seen[0]

    try:
        return tenacity.Retrying(
            stop=tenacity.stop_after_delay(seconds),
            wait=tenacity.wait_fixed(0.25),
            retry=tenacity.retry_if_result(lambda value: not value) | tenacity.retry_if_exception_type(ApiError),
        )(attempt)
    except tenacity.RetryError as error:
        raise AssertionError(f"not within {seconds:g} s; last seen: {seen[0]!r}") from error


def stays(look: Callable[[], Any], value: Any, seconds: float) -> None:
    """Check for some time that a function keeps returning one value."""
    for _ in looks(seconds):
        assert look() == value


def looks(seconds: float, every: float = 0.5) -> Iterator[float]:
    """Times to look at something, until the time is over: the seconds since the first."""
    begun = time.monotonic()
    ticker = threading.Event()
    while (elapsed := time.monotonic() - begun) < seconds:
        yield elapsed
        ticker.wait(every)


PULSE_SECONDS = 0.1


@dataclass
class Lost:
    """What the machine took from this process: `seconds` in which it did not run although it wanted to."""

    seconds: float = 0.0


@contextmanager
def stalls() -> Iterator[Lost]:
    """Sums up for how long a thread that wants to run ten times a second could not."""
    lost, over = Lost(), threading.Event()

    def watch() -> None:
        last = time.monotonic()
        while not over.wait(PULSE_SECONDS):
            now = time.monotonic()
            lost.seconds += max(0.0, now - last - 2 * PULSE_SECONDS)
            last = now

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        over.set()
        thread.join()


def undisturbed(play: Callable[[], Any], times: int = 3) -> Any:
    """What `play` returns or raises when the machine was not taken from it for more than a second in all; of the last
    time otherwise."""
    for left in reversed(range(times)):
        result, error = None, None
        with stalls() as lost:
            try:
                result = play()
            except (AssertionError, subprocess.TimeoutExpired) as raised:
                error = raised
        if lost.seconds <= 1.0 or not left:
            break
    if error is not None:
        raise error
    return result
