"""Is this process alive, and is it ready? What `/healthz` and `/readyz` answer, and why not.

Alive: the engine's loop turns. The probe is answered by the same event loop, so one that is stuck answers nothing, and
a loop of the engine that waits for something that never comes is told by its last turn.

Ready: everything that is watched was read and is followed, and the bundled policy is loaded. Who holds the Lease is no
matter: a standby is as ready to act as the holder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

STUCK_SECONDS = 30.0
"""The engine's loop turns at least once a second; a pause of a slow machine is far shorter than this."""


class Health:
    """What the parts of one operator say about themselves."""

    def __init__(self, parts: Mapping[str, Callable[[], str]], clock: Callable[[], float] = time.monotonic) -> None:
        """`parts` say why they are not ready; empty = they are."""
        self._parts, self._clock = parts, clock
        self._turned_at: float | None = None

    def turn(self) -> None:
        """The engine's loop has come round."""
        self._turned_at = self._clock()

    def not_alive(self) -> str:
        """Why the process should be started again; empty = it is alive. A loop that has not begun is not stuck."""
        if self._turned_at is None:
            return ""
        silent = self._clock() - self._turned_at
        return f"the engine's loop has not turned for {silent:.0f} s" if silent > STUCK_SECONDS else ""

    def not_ready(self) -> str:
        """Why it is not ready; empty = it is."""
        return "; ".join(f"{part}: {why}" for part, look in self._parts.items() if (why := look()))
