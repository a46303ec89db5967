"""The operator's clock: Unix seconds that follow the wall clock of the machine and do not take its steps."""

from __future__ import annotations

import time
from collections.abc import Callable

LOOK_SECONDS = 1.0
"""Time between two looks at the wall clock."""

SLEW = 0.1
"""Largest share by which the clock is faster or slower than real time while it corrects an error."""

FAR_SECONDS = 3600.0
"""Error beyond which the clock is set instead: a machine that started without the right time may be years off."""

LASTING_SECONDS = 600.0
"""Time for which such an error has to last: a wall clock that is set wrong is often set right again within minutes."""


class Clock:
    """Unix times of monotonic times."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._looked = monotonic()
        self._epoch = wall() - self._looked
        self._far_since: float | None = None

    def unix(self, monotonic: float) -> float:
        """Return the Unix time in seconds of a monotonic time of now, or of shortly before."""
        now = self._monotonic()
        if (passed := now - self._looked) >= LOOK_SECONDS:
            self._looked = now
            self._correct(self._wall() - now - self._epoch, passed, now)
        return self._epoch + monotonic

    def now(self) -> float:
        """Return the Unix time in seconds of now."""
        return self.unix(self._monotonic())

    def _correct(self, error: float, passed: float, now: float) -> None:
        if abs(error) <= FAR_SECONDS:
            self._far_since = None
            # Ages and windows are off by a tenth at most meanwhile, and the time never goes back.
            self._epoch += max(-SLEW * passed, min(error, SLEW * passed))
        elif self._far_since is None:
            self._far_since = now
        elif now - self._far_since >= LASTING_SECONDS:
            # The decisions take the step for a gap (`rlscaler_core.decision.clock`).
            self._epoch, self._far_since = self._epoch + error, None


_CLOCK = Clock()

unix, unix_now = _CLOCK.unix, _CLOCK.now
