"""Waiting for conditions with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import tenacity

from rlscaler_devcluster.exceptions import ApiError


def until(look: Callable[[], Any], seconds: float = 30.0) -> Any:
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
