"""A rate as it was when its newest raw sample was new. Pure.

A rate is taken over a window that ends now. When samples stop coming the window only empties: the rate falls, and
nothing was measured. So a rate whose newest sample stands still keeps the value that it had when that sample was first
seen, and grows old. Where that sample was old by then, the value may raise replicas and not lower them.
"""

from __future__ import annotations

from typing import NamedTuple

FORGET_SECONDS = 3600.0
"""As long as `maxAgeSeconds` can be: what is older is believed by no policy."""

FULL_SCRAPES = 1.1
"""`rate` goes on to the end of its window where that is nearer to the newest sample than so many scrapes
(extrapolatedRate in Prometheus's promql/functions.go): nothing is missing then."""

LATER_SCRAPES = 0.5
"""Where samples always come late: so much later than the promptest of them is no reason for doubt."""

Name = tuple[tuple[str, str], str]
"""What a rate is of: ((namespace, name), pool)."""


class Seen(NamedTuple):
    """A rate when its newest raw sample was first seen."""

    value: float
    taken: float
    """Time of that sample, in unix seconds by Prometheus's clock."""
    lag_seconds: float
    """How old such a sample is at least when it is first seen."""
    may_lower: bool
    """Was its window full? If not, the rate is too low, and nobody knows whether samples come late or have stopped."""


def look(before: Seen | None, value: float, taken: float, evaluated: float, scrape_seconds: float) -> Seen:
    """What a rate counts as whose newest sample is of `taken` and that was asked for at `evaluated`.

    Of the very first sample, and after Prometheus's clock was set back, nobody knows whether more were to follow.
    """
    age = max(0.0, evaluated - taken)
    if before is None or before.taken > evaluated:
        return Seen(value, taken, age, may_lower=False)
    if taken <= before.taken:
        return before
    if age < max(FULL_SCRAPES * scrape_seconds, before.lag_seconds + LATER_SCRAPES * scrape_seconds):
        return Seen(value, taken, min(age, before.lag_seconds), may_lower=True)
    return Seen(value, taken, age, may_lower=False)


class Rates:
    """What was last seen of the rates that one query gives."""

    def __init__(self, scrape_seconds: float) -> None:
        self._scrape_seconds = scrape_seconds
        self._seen: dict[Name, Seen] = {}
        self._swept = 0.0

    def look(self, name: Name, value: float, taken: float, evaluated: float) -> Seen:
        """As the function `look`; remembered for the next time."""
        if evaluated - self._swept > FORGET_SECONDS:
            self._seen = {key: seen for key, seen in self._seen.items() if evaluated - seen.taken <= FORGET_SECONDS}
            self._swept = evaluated
        seen = self._seen[name] = look(self._seen.get(name), value, taken, evaluated, self._scrape_seconds)
        return seen
