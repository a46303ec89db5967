"""A rate as it was when its newest raw sample was new. Pure.

A rate is taken over a window that ends now. When samples stop coming the window only empties: the rate falls, and
nothing was measured. So a rate whose newest sample stands still keeps the value that it had when that sample was first
seen, and grows old. A rate of a window that may not be full is too low: it may raise replicas and not lower them.
"""

from __future__ import annotations

from typing import NamedTuple

from rlscaler_operator.sensing.queries import Window

FORGET_SECONDS = 3600.0
"""As long as `maxAgeSeconds` can be: what is older is believed by no policy."""

FULL_SCRAPES = 1.1
"""`rate` goes on to an end of its window that is nearer to a sample than so many scrapes (extrapolatedRate in
Prometheus's promql/functions.go): nothing is missing there."""

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
    begun: float
    """Time of the newest sample when the window first had enough of them: another one, a scrape older."""
    may_lower: bool
    """Was its window full? If not, nobody knows whether samples come late, come again, or have stopped."""


def look(before: Seen | None, value: float, taken: float, evaluated: float, window: Window) -> Seen:
    """What a rate counts as whose newest sample is of `taken` and that was asked for at `evaluated`.

    What is seen first, or first after Prometheus's clock was set back, may be of any window.
    """
    age, scrape = max(0.0, evaluated - taken), window.scrape_seconds
    if before is None or before.taken > evaluated:
        return Seen(value, taken, age, begun=taken, may_lower=False)
    if taken <= before.taken:
        return before
    prompt = age < max(FULL_SCRAPES * scrape, before.lag_seconds + LATER_SCRAPES * scrape)
    filled = taken - before.begun > window.seconds - (1 + FULL_SCRAPES) * scrape
    lag = min(age, before.lag_seconds) if prompt else age
    return Seen(value, taken, lag, before.begun, may_lower=prompt and filled)


class Rates:
    """What was last seen of the rates that one query gives."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._seen: dict[Name, Seen] = {}
        self._swept = 0.0

    def look(self, name: Name, value: float, taken: float, evaluated: float) -> Seen:
        """As the function `look`; remembered for the next time."""
        if evaluated - self._swept > FORGET_SECONDS:
            self._seen = {key: seen for key, seen in self._seen.items() if evaluated - seen.taken <= FORGET_SECONDS}
            self._swept = evaluated
        seen = self._seen[name] = look(self._seen.get(name), value, taken, evaluated, self._window)
        return seen

    def forget(self, name: Name) -> None:
        """Its window has too few samples: when there are enough again it has to fill first."""
        self._seen.pop(name, None)
