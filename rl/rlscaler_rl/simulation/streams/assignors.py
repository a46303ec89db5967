"""Who of a group gets which partitions: whole ones, as equal in number as can be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlscaler_core.decision.types import Int

NOBODY = -1


def in_ranges(partitions: int, members: Sequence[int]) -> Int:
    """(partitions,) member of each partition: neighbours together, the first members one more where it is uneven."""
    if not members:
        return np.full(partitions, NOBODY, np.int32)
    each, more = divmod(partitions, len(members))
    counts = [each + (place < more) for place in range(len(members))]
    return np.repeat(np.asarray(members, np.int32), counts)


def sticky(owner: Int, members: Sequence[int]) -> Int:
    """(partitions,) member of each partition, as equal in number as in ranges, with as few that change as can be.

    `owner` (partitions,) says who has each partition now. One is free to be given where that is `NOBODY`, or is no
    member any more.
    """
    if not members:
        return np.full(len(owner), NOBODY, np.int32)
    each, more = divmod(len(owner), len(members))
    has = {member: np.flatnonzero(owner == member).tolist() for member in members}
    order = sorted(members, key=lambda member: -len(has[member]))
    room = {member: each + (place < more) for place, member in enumerate(order)}
    result = np.full(len(owner), NOBODY, np.int32)
    for member in order:
        result[has[member][: room[member]]] = member
        room[member] -= min(len(has[member]), room[member])
    free = iter(np.flatnonzero(result == NOBODY).tolist())
    for member in order:
        for _ in range(room[member]):
            result[next(free)] = member
    return result
