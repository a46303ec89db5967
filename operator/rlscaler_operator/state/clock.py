"""The operator's clock: Unix seconds that never go back while the process runs."""

from __future__ import annotations

import time

_EPOCH = time.time() - time.monotonic()


def unix(monotonic: float) -> float:
    """Return the Unix time in seconds of a monotonic time. Steps of the wall clock do not change it."""
    return _EPOCH + monotonic


def unix_now() -> float:
    """Return the Unix time in seconds of now."""
    return unix(time.monotonic())
