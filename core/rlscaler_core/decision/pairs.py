"""Reductions over the pool axis (N, 2) -> (N,); NumPy's own are many times slower on so short an axis."""

from __future__ import annotations

from rlscaler_core.decision.types import Bool, Float


def either(pools: Bool) -> Bool:
    return pools[:, 0] | pools[:, 1]


def both(pools: Bool) -> Bool:
    return pools[:, 0] & pools[:, 1]


def total(pools: Float) -> Float:
    return pools[:, 0] + pools[:, 1]
