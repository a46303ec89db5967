"""How large a policy's pods should be: one look at what they use, with all that it takes to look again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rlscaler_core.api.resources import PodResources, SizeRange
from rlscaler_core.api.status import PodSizes, PodSizeStatus
from rlscaler_core.vertical import recommend as vertical
from rlscaler_core.vertical.quantities import readable, text
from rlscaler_core.vertical.recommend import Memory, Ranges, Usage
from rlscaler_core.vertical.size import PodSize

RESOURCES = ("cpu", "memory")
"""Resources of which a pod has a size."""


class Sizing(NamedTuple):
    """What was recommended for the pods of some pools, and from what."""

    pools: tuple[str, ...]
    ranges: Ranges
    before: Memory
    usage: Usage
    after: Memory

    @property
    def sizes(self) -> dict[str, PodSize]:
        """The size that each pool's pods should have, as it is shown and written."""
        least = vertical.least_memory(self.ranges, self.after, self.usage.time)
        rows = zip(self.pools, self.after.size.tolist(), self.ranges.most.tolist(), least.tolist(), strict=True)
        return {
            pool: PodSize(readable("cpu", cpu, most[0]), readable("memory", memory, most[1]), enough)
            for pool, (cpu, memory), most, enough in rows
        }


def ranges_of(resources: Iterable[PodResources]) -> Ranges:
    """Return the ranges of pools, a row for each; NaN where a resource has none."""
    rows = [[_row(one.cpu), _row(one.memory)] for one in resources]
    least, most, step = np.moveaxis(np.array(rows, np.float64), 2, 0)
    return Ranges(least, most, step)


def _row(size: SizeRange | None) -> tuple[float, float, float]:
    return (math.nan,) * 3 if size is None else (size.least, size.most, size.granularity)


def look(before: Memory, ranges: Ranges, pools: tuple[str, ...], usage: Usage) -> Sizing:
    """Take in what the pods use now."""
    return Sizing(pools, ranges, before, usage, vertical.recommend(ranges, before, usage))


def status_of(sizing: Sizing, seen: str | None) -> PodSizes:
    """Return what the status shows; `seen` is the memory as text, which is renewed from time to time."""
    shown = {pool: PodSizeStatus(**texts) for pool, size in sizing.sizes.items() if (texts := _texts(size))}
    return PodSizes(**shown, seen=seen)


def _texts(size: PodSize) -> dict[str, str]:
    return {name: text(name, getattr(size, name)) for name in RESOURCES if not math.isnan(getattr(size, name))}
