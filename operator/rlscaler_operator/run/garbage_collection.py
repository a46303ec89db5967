"""Python's garbage collector, told what lives long.

A full collection looks at every object: 0.3 s at a thousand policies, in which the event loop stands still. What
survives one lives long and is frozen, so that the next one looks at what is new. Frozen objects still go when nobody
refers to them; only cycles of them stay, until all is looked at again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

WHOLE_SECONDS = 3600.0
"""How often everything is looked at."""

YOUNG_OBJECTS = 5_000
"""New objects before they are looked at, 700 by default. Nearly all of a quiet tick's are gone by themselves before."""


class Collecting:
    """Freezes what survived a full collection; `begin` and `end` switch it on and off."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._whole_at, self._before = clock, clock(), gc.get_threshold()

    def begin(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS, *self._before[1:])
        gc.callbacks.append(self._collected)

    def end(self) -> None:
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._before)
        gc.unfreeze()

    def _collected(self, phase: str, info: Mapping[str, int]) -> None:
        if phase != "stop" or info["generation"] != 2:
            return
        if self._clock() - self._whole_at >= WHOLE_SECONDS:
            self._whole_at = self._clock()
            gc.unfreeze()
        else:
            gc.freeze()
