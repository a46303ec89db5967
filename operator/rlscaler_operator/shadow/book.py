"""Rows of twins that come and go: policies of one stack size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.decide import Kind
from rlscaler_core.decision.types import Bool, Float, Params, Samples
from rlscaler_core.queueing.fluid import Meter
from rlscaler_operator.shadow.case import SUMS, Case
from rlscaler_operator.shadow.twins import Twin, drive, meter, new_twin

Numbers = NDArray[np.intp]


class Book:
    """A table of twins; a row belongs to one case from `admit` to `release`."""

    def __init__(self, stack: int) -> None:
        self.stack = stack
        self._twins: Twin | None = None
        self._sums = np.zeros((0, len(SUMS)))
        self._free: list[int] = []

    @property
    def _all(self) -> Twin:
        assert self._twins is not None
        return self._twins

    def admit(self, new: list[tuple[Case, Params, Samples]]) -> None:
        """A row for each case, starting from the replicas of its samples."""
        if not new:
            return
        fresh = Twin.concat([new_twin(params, samples, self.stack) for _, params, samples in new])
        reused, self._free = self._free[: len(new)], self._free[len(new) :]
        begin = len(self._sums)
        rows = np.array([*reused, *range(begin, begin + len(new) - len(reused))], np.intp)
        if self._twins is None:
            self._twins = fresh
        elif len(reused) < len(new):
            self._twins = Twin.concat([self._twins, fresh.take(slice(len(reused), None))])
        if reused:
            self._all.put(rows[: len(reused)], fresh, slice(0, len(reused)))
        self._sums = np.concatenate([self._sums, np.zeros((len(new) - len(reused), len(SUMS)))])
        for row, (case, *_) in zip(rows.tolist(), new, strict=True):
            case.row = row
            self._sums[row] = case.begun

    def release(self, row: int) -> None:
        if row >= 0:
            self._free.append(row)

    def params(self, rows: Numbers) -> Params:
        return self._all.params.take(rows)

    def set_params(self, row: int, params: Params) -> None:
        self._all.params.put(row, params, 0)

    def sums(self, row: int) -> Float:
        """(6,) of today."""
        today: Float = self._sums[row]
        return today

    def reset(self, row: int) -> None:
        """A new day."""
        self._sums[row] = 0

    def real(self, row: int) -> Meter:
        """The meter of the service that runs, one row."""
        return self._all.real.take(slice(row, row + 1))

    def excess(self, rows: Numbers) -> tuple[Float, Float]:
        """(N, 2, 2) late requests of the virtual service above the real one's, and (N,) seconds compared."""
        return self._all.excess[rows], self._all.real.seconds[rows]

    def meter(self, rows: Numbers, samples: Samples, share: Float, window_seconds: float, compared: Bool) -> None:
        """Time passes in both services of the given rows."""
        twin, passed = meter(self._all.take(rows), samples, share, window_seconds, compared)
        self._all.put(rows, twin)
        self._sums[rows] += np.stack([getattr(passed, name) for name in SUMS], axis=1)

    def drive(
        self,
        rows: Numbers,
        samples: Samples,
        actor: ActorLike | None,
        kind: Kind,
        compared: Bool,
        change: Callable[[Params], Params] | None,
    ) -> None:
        """The virtual services of the given rows are scaled; `change` makes their params of the policies'."""
        twin = self._all.take(rows)
        params = twin.params if change is None else change(twin.params)
        self._all.put(rows, drive(twin, samples, params, actor, kind, compared))
