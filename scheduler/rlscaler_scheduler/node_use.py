"""Measured CPU and memory use of nodes, and the addresses by which Prometheus names them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rlscaler_core.placement.types import RESOURCES, Float, Int, Nodes


class Addresses:
    """IP addresses and host names of nodes, as they were last written."""

    def __init__(self) -> None:
        self._names_at: dict[str, dict[str, None]] = {}
        """Address -> names of the nodes that have it, the last written at the end."""
        self._of: dict[str, tuple[str, ...]] = {}
        """Node name -> its addresses."""

    def put(self, name: str, addresses: Iterable[str]) -> None:
        """Note the addresses of a node in place of those that it had; none for one that is gone."""
        for address in self._of.pop(name, ()):
            names = self._names_at[address]
            names.pop(name)
            if not names:
                del self._names_at[address]
        if has := tuple(dict.fromkeys(addresses)):
            self._of[name] = has
        for address in has:
            self._names_at.setdefault(address, {})[name] = None

    def name_at(self, address: str) -> str | None:
        """The node that has the address, of several the last written; None where none has it."""
        return next(reversed(self._names_at.get(address, {})), None)


class Use:
    """Measured shares. Rates are of the past, so pods that came since the measurement before count by their requests.

    Without that all pods of a burst would go to the node that was the emptiest when it was measured.
    """

    def __init__(self) -> None:
        self._shares = np.zeros((0, len(RESOURCES)))
        self._until = np.zeros(0)
        self._last = np.zeros((0, len(RESOURCES)))
        """Requests on each node at its last measurement."""
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
        """Note shares (M, 2) for rows (M,), the end of their validity (M,), and the present requests (all, 2)."""
        self._shares[rows], self._until[rows] = shares, until
        self._before[rows] = self._last[rows]
        self._last[rows] = requested[rows]

    def at(self, rows: Int, nodes: Nodes, now: float) -> Float:
        """(N, 2) shares in use of the nodes (N,) of these rows; NaN where the measurement is too old or missing."""
        fresh = self._until[rows] > now
        if not fresh.any():
            return np.full((len(rows), len(RESOURCES)), np.nan)
        # Requests since the measurement before the last one, because rates of use lag behind.
        came = np.maximum(nodes.requested - self._before[rows], 0.0) / np.maximum(nodes.allocatable, 1.0)
        use: Float = np.where(fresh[:, None], self._shares[rows] + came, np.nan)
        return use
