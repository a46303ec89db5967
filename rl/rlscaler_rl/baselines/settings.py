"""Settings of contenders: one value for all episodes of a batch, or one a row.

A field is a scalar or (N,); one that differs between the pools is a pair (GPU, CPU) or (N, 2), or a scalar for both.
So thousands of settings can be played in one batch, each in rows of its own, by the same code that plays one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Value = NDArray[Any] | float
Pair = NDArray[Any] | tuple[float, float] | float

S = TypeVar("S")


def column(value: Value, like: NDArray[Any] | None = None) -> NDArray[Any]:
    """A row's value beside an array with more axes (`like`, or (N, 2)): () or (N, 1, ...)."""
    array = np.asarray(value)
    return array.reshape(-1, *[1] * ((2 if like is None else like.ndim) - 1)) if array.ndim else array


def rows(value: Value, n: int) -> NDArray[Any]:
    """(N,) from a scalar or (N,)."""
    return np.broadcast_to(np.asarray(value), (n,))


def pools(value: Pair, n: int) -> NDArray[Any]:
    """(N, 2) from a scalar, a pair or (N, 2). Raises ValueError for anything else, (N,) included."""
    return np.broadcast_to(np.asarray(value), (n, 2))


def stacked(settings: Sequence[S], repeats: int = 1) -> S:
    """Settings of one kind as one: the first in the first `repeats` rows, the second in the next, and so on.

    Fields that name something (text, None) must agree. Raises ValueError where they do not.
    """
    first = settings[0]
    if is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in fields(first)]
        return type(first)(**{name: stacked([getattr(one, name) for one in settings], repeats) for name in names})
    if isinstance(first, tuple) and any(is_dataclass(part) for part in first):
        return tuple(stacked(parts, repeats) for parts in zip(*settings, strict=True))  # type: ignore[return-value]
    if first is None or isinstance(first, str):
        if any(one != first for one in settings):
            raise ValueError(f"{sorted({str(one) for one in settings})}: must be the same in all settings of a batch")
        return first
    return np.repeat(np.stack([np.asarray(one) for one in settings]), repeats, axis=0)  # type: ignore[return-value]
