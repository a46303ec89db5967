"""The simulations of all policies of one stack size, in one table whose rows come and go."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.decide import Kind
from rlscaler_core.decision.types import Bool, Float, Params, Samples
from rlscaler_core.queueing.fluid import Meter
from rlscaler_operator.shadow.comparison import SUMS, Comparison
from rlscaler_operator.shadow.service_times import ServiceTimes
from rlscaler_operator.shadow.simulation import ShadowSimulation, advance_meters, new_simulation, scale_virtual

Numbers = NDArray[np.intp]


class SimulationTable:
    """A table of simulations; a row belongs to one comparison from `admit` to `release`."""

    def __init__(self, stack: int) -> None:
        self.stack = stack
        self._simulations: ShadowSimulation | None = None
        self._sums = np.zeros((0, len(SUMS)))
        self._free: list[int] = []

    @property
    def _all(self) -> ShadowSimulation:
        assert self._simulations is not None
        return self._simulations

    def admit(self, new: list[tuple[Comparison, Params, Samples]]) -> None:
        """Admit comparisons: a row for each, starting from the replicas of its samples."""
        if not new:
            return
        fresh = ShadowSimulation.concat([new_simulation(params, samples, self.stack) for _, params, samples in new])
        # Free rows are used again before the table grows, which copies it.
        reused, self._free = self._free[: len(new)], self._free[len(new) :]
        begin = len(self._sums)
        rows = np.array([*reused, *range(begin, begin + len(new) - len(reused))], np.intp)
        if self._simulations is None:
            self._simulations = fresh
        elif len(reused) < len(new):
            self._simulations = ShadowSimulation.concat([self._simulations, fresh.take(slice(len(reused), None))])
        if reused:
            self._all.put(rows[: len(reused)], fresh, slice(0, len(reused)))
        self._sums = np.concatenate([self._sums, np.zeros((len(new) - len(reused), len(SUMS)))])
        for row, (comparison, *_) in zip(rows.tolist(), new, strict=True):
            comparison.row = row
            self._sums[row] = comparison.begun

    def release(self, row: int) -> None:
        if row >= 0:
            self._free.append(row)

    def params(self, rows: Numbers) -> Params:
        return self._all.params.take(rows)

    def set_params(self, row: int, params: Params) -> None:
        self._all.params.put(row, params, 0)

    def sums(self, row: int) -> Float:
        """Return the sums (6,) of today, in the order of `SUMS`."""
        today: Float = self._sums[row]
        return today

    def reset(self, row: int) -> None:
        """Begin a new day with sums of 0."""
        self._sums[row] = 0

    def real(self, row: int) -> Meter:
        """Return the meter of the service that runs, one row."""
        return self._all.real.take(slice(row, row + 1))

    def excess(self, rows: Numbers) -> tuple[Float, Float]:
        """Return late requests (N, 2, 2) of the virtual service above the real one's, and seconds compared (N,)."""
        return self._all.excess[rows], self._all.real.seconds[rows]

    def advance_meters(
        self,
        rows: Numbers,
        samples: Samples,
        share: Float,
        window_seconds: float,
        compared: Bool,
        request_rate: Float | None = None,
        times: ServiceTimes | None = None,
        capacity_factor: Float | None = None,
    ) -> None:
        """Let time pass in both services of the given rows; the last three as in `simulation.advance_meters`."""
        simulation, passed = advance_meters(
            self._all.take(rows), samples, share, window_seconds, compared, request_rate, times, capacity_factor
        )
        self._all.put(rows, simulation)
        self._sums[rows] += np.stack([getattr(passed, name) for name in SUMS], axis=1)

    def scale_virtual(
        self,
        rows: Numbers,
        samples: Samples,
        actor: ActorLike | None,
        kind: Kind,
        compared: Bool,
        change: Callable[[Params], Params] | None,
    ) -> None:
        """Scale the virtual services of the given rows; `change` makes their params out of the policies'."""
        simulation = self._all.take(rows)
        params = simulation.params if change is None else change(simulation.params)
        self._all.put(rows, scale_virtual(simulation, samples, params, actor, kind, compared))
