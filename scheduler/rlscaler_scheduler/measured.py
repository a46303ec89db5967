"""How much of their CPU and memory nodes use, by row of the cache, and what came to them since that was measured."""

from __future__ import annotations

import numpy as np

from rlscaler_core.placement.types import RESOURCES, Float, Int, Nodes


class Use:
    """Measured shares. Rates are of the past, so pods that came since the measurement before count by their requests.

    Without that all pods of a burst would go to the node that was the emptiest when it was measured.
    """

    def __init__(self) -> None:
        self._shares = np.zeros((0, len(RESOURCES)))
        self._until = np.zeros(0)
        self._last = np.zeros((0, len(RESOURCES)))
        """What was requested of each node when it was measured."""
        self._before = np.zeros((0, len(RESOURCES)))
        """The same one measurement earlier."""

    def grow(self, count: int) -> None:
        """Make room for this many further nodes."""
        more = np.zeros((count, len(RESOURCES)))
        self._shares = np.concatenate([self._shares, more])
        self._until = np.concatenate([self._until, np.zeros(count)])
        self._last, self._before = np.concatenate([self._last, more]), np.concatenate([self._before, more])

    def forget(self, row: int) -> None:
        """Another node has the row now: nothing was measured, and nothing was requested before."""
        self._until[row], self._last[row], self._before[row] = 0.0, 0.0, 0.0

    def measured(self, rows: Int, shares: Float, until: Float, requested: Float) -> None:
        """Note shares (M, 2) for rows (M,), until when they are believed (M,), and what is requested now (all, 2)."""
        self._shares[rows], self._until[rows] = shares, until
        self._before[rows] = self._last[rows]
        self._last[rows] = requested[rows]

    def at(self, rows: Int, nodes: Nodes, now: float) -> Float:
        """(N, 2) shares in use of the nodes (N,) of these rows; NaN where the measurement is too old or missing."""
        fresh = self._until[rows] > now
        if not fresh.any():
            return np.full((len(rows), len(RESOURCES)), np.nan)
        came = np.maximum(nodes.requested - self._before[rows], 0.0) / np.maximum(nodes.allocatable, 1.0)
        found: Float = np.where(fresh[:, None], self._shares[rows] + came, np.nan)
        return found
