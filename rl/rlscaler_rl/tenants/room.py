"""Owners of the GPUs of a shared pool: pods get them in the order of their creation, and wait where none is free.

As kube-scheduler does with pods of one priority. A free GPU goes to the pod that waits longest, whosever it is; nothing
is taken from a pod that has one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float, Int
from rlscaler_rl.simulation.cluster import MAX_PODS

Long = NDArray[np.int64]


class SharedRoom:
    """N rows of P pools; a pod takes one GPU."""

    def __init__(self, pool: Int, gpus: Long, held: Long, seed: int = 0) -> None:
        """`pool` (N,) is each row's pool, `gpus` (P,) are there, and `held` (N,) pods have one already.

        Pods that are created in the same tick get theirs in a random order, drawn from `seed`.
        """
        self.pool, self.gpus = np.asarray(pool), np.asarray(gpus)
        self.held: Long = np.asarray(held, np.int64).copy()
        self._since = np.full((len(pool), MAX_PODS), np.inf)
        self._waiting = np.zeros(len(pool), np.int64)
        self._rng = np.random.default_rng([seed, 7])

    def place(self, pods: Long, now: float) -> Long:
        """Return each row's pods (N,) that hold a GPU, of the `pods` (N,) that exist at `now` seconds."""
        pods = np.asarray(pods, np.int64)
        self.held = np.minimum(self.held, pods)
        waiting = pods - self.held
        k = np.arange(MAX_PODS)
        since = np.where(k < waiting[:, None], self._since, np.inf)
        new = (k >= self._waiting[:, None]) & (k < waiting[:, None])
        self._since, self._waiting = np.where(new, now, since), waiting
        got = self._hand_out()
        self.held += got
        moved = np.minimum(k + got[:, None], MAX_PODS - 1)
        self._waiting = self._waiting - got
        shifted = np.take_along_axis(self._since, moved, axis=1)
        self._since = np.where(k < self._waiting[:, None], shifted, np.inf)
        return self.held

    def lose(self, lost: Long, ready: Long) -> tuple[Long, Long]:
        """Take `lost` (P,) GPUs out of the pools, any of them.

        Returns the pods (N,) of each row that were on them, and those (N,) of them that were `ready` (N,).
        """
        gone = np.zeros(len(self.pool), np.int64)
        for pool in np.flatnonzero(lost):
            rows = np.flatnonzero(self.pool == pool)
            on = np.append(self.held[rows], max(self.gpus[pool] - self.held[rows].sum(), 0))
            gone[rows] = self._rng.multivariate_hypergeometric(on, min(lost[pool], on.sum()))[:-1]
        running = self._rng.hypergeometric(ready, self.held - ready, gone)
        self.gpus = self.gpus - lost
        self.held = self.held - gone
        return gone, running

    def regain(self, returned: Long) -> None:
        """Put `returned` (P,) GPUs back into the pools."""
        self.gpus = self.gpus + returned

    def _hand_out(self) -> Long:
        """Return the pods (N,) that get a free GPU."""
        row = np.repeat(np.arange(len(self.pool)), self._waiting)
        if not row.size:
            return np.zeros(len(self.pool), np.int64)
        tie = self._rng.random(len(self.pool))
        order = np.lexsort((tie[row], self._since[np.isfinite(self._since)], self.pool[row]))
        row = row[order]
        pool = self.pool[row]
        begin = np.searchsorted(pool, pool)
        free = self.gpus - np.bincount(self.pool, self.held, len(self.gpus)).astype(np.int64)
        return np.bincount(row[np.arange(len(row)) - begin < free[pool]], minlength=len(self.pool)).astype(np.int64)


def share_held(held: Float, alone: Float) -> Float:
    """Return the share of its holding alone that each tenant holds, at most 1; 1 where it holds nothing alone."""
    return np.where(alone > 0, np.minimum(held / np.maximum(alone, 1e-12), 1.0), 1.0)
