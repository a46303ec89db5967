"""When a network may score, and when the rule acts in its place for a while."""

from __future__ import annotations

from collections.abc import Callable

FAULTS = 3
"""Faults or late answers of a network, one after the other, at which its rule takes over."""


class Breaker:
    """Lets a network act until it has failed or been late several times in a row; then not for a while."""

    def __init__(self, budget_seconds: float, open_seconds: float, clock: Callable[[], float]) -> None:
        self._budget, self._pause, self._clock = budget_seconds, open_seconds, clock
        self._faults, self._closed_at = 0, float("-inf")

    @property
    def open(self) -> bool:
        """Whether the network may not act now."""
        return self._clock() < self._closed_at

    def ran(self, seconds: float, failed: bool) -> None:
        """Note one run."""
        # Faults in a row: one good run proves that the network works again.
        self._faults = self._faults + 1 if failed or seconds > self._budget else 0
        if self._faults >= FAULTS:
            self._faults, self._closed_at = 0, self._clock() + self._pause
