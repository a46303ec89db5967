"""Work for many at once, and for each half where it fails, until those it fails for are alone."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

log = logging.getLogger("rlscaler.halves")

T = TypeVar("T")
R = TypeVar("R")

Results = list[tuple[Sequence[T], R | Exception]]
"""Parts in the order of their items, with the result of each; an error that is divisible is that of one item."""


async def by_halves(
    doing: str,
    items: Sequence[T],
    work: Callable[[Sequence[T]], Awaitable[R]],
    divisible: Callable[[Exception], bool] = lambda _: True,
) -> Results[T, R]:
    """Return the results of `work` for all items, or for the parts that it does not fail for; never raises its errors.

    `divisible` returns True for an error that single items may be the reason of. `doing` completes "could not".
    """
    try:
        return [(items, await work(items))]
    except Exception as error:
        if len(items) <= 1 or not divisible(error):
            return [(items, error)]
        log.warning("could not %s for %d policies at once: each half is tried: %r", doing, len(items), error)
    half = len(items) // 2
    first = await by_halves(doing, items[:half], work, divisible)
    return first + await by_halves(doing, items[half:], work, divisible)
