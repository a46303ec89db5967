"""A pause that doubles with every repetition and is forgotten once things have been quiet for long enough. Pure."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_SECONDS = 3600.0
"""The longest pause, and the shortest quiet after which a repetition counts as the first one again."""


@dataclass(slots=True)
class GrowingBackoff:
    """Counts how often something came back. Times are in seconds by any clock that does not go backwards."""

    seconds: float = 0.0
    """The pause that the last repetition began; 0 = none."""
    until: float = float("-inf")
    """When that pause is over."""
    last: float = float("-inf")
    """When it came last."""

    def again(self, now: float, first_seconds: float) -> None:
        """Note that it came once more.

        The first time begins no pause, the second one of `first_seconds`, each further one twice the last. No pause is
        longer than `LONGEST_SECONDS`. What did not come back within an hour after the last pause was over is forgotten.
        """
        repeated = now - max(self.last, self.until) <= LONGEST_SECONDS
        self.seconds = min(max(first_seconds, 2 * self.seconds), LONGEST_SECONDS) if repeated else 0.0
        self.last, self.until = now, now + self.seconds

    def waits(self, now: float) -> bool:
        """Return True while the pause is not over."""
        return now < self.until
