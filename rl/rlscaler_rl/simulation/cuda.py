"""The fluid level on a GPU: the same kernels compiled for it, one thread a row, and the clusters in its memory.

`fluid`, `pods` and `sensing` are compiled a second time by numba-cuda, from the same source. CuPy's arrays hold what
they read and write, and the decision function runs on these arrays as it does on NumPy's. Sums are rounded otherwise
than on the processors, so the last bits differ (measured at commit 5c41c3e).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Rows
from rlscaler_rl.simulation import cluster as clusters
from rlscaler_rl.simulation import fluid, sensing
from rlscaler_rl.simulation.cluster import ClusterFacts, ClusterState
from rlscaler_rl.simulation.tables import tables

T = TypeVar("T")

THREADS = 128
"""Threads of a block."""

INSTALL = "install rlscaler with the extras `train` and `gpu`"


@cache
def missing() -> str:
    """Say what is missing for a GPU to be used and what to do about it; nothing where all is there."""
    try:
        import cupy
        from numba import cuda
    except ImportError as error:
        return f"{error}; {INSTALL}"
    try:
        if cupy.cuda.runtime.getDeviceCount() and cuda.is_available():
            return ""
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no NVIDIA GPU answers ({error}); install its driver"
    return "no NVIDIA GPU answers; install its driver"


class Records:
    """A structured array in the GPU's memory, all of whose fields have eight bytes; CuPy has none of its own."""

    def __init__(self, words: Any, dtype: np.dtype[Any]) -> None:
        """`words` (..., len(dtype.names)) uint64."""
        self.words, self.dtype = words, dtype
        self._names = list(dtype.names or ())

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.words.shape[:-1])

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, place: Any) -> Any:
        """A field's column (...,), not copied, or the rows of an index."""
        if isinstance(place, str):
            return self.words[..., self._names.index(place)].view(self.dtype[place])
        return Records(self.words[place], self.dtype)

    def __setitem__(self, rows: Any, values: Records) -> None:
        self.words[rows] = values.words

    def get(self) -> NDArray[Any]:
        """The array on the processors."""
        return self.words.get().view(self.dtype)[..., 0]


def place(table: T) -> T:
    """An array, a structured array, or a table of arrays in the GPU's memory."""
    import cupy

    made: Any = table
    if isinstance(table, Rows):
        made = type(table)(*map(place, table._arrays()))
    elif isinstance(table, tuple):
        made = type(table)(*map(place, table))
    elif isinstance(table, np.ndarray) and table.dtype.names:
        words = np.ascontiguousarray(table)[..., None].view(np.uint64)
        made = Records(cupy.asarray(words), table.dtype)
    elif isinstance(table, np.ndarray):
        made = cupy.asarray(np.ascontiguousarray(table))
    return made


class CudaLevel:
    """The `levels.Level` of this module; its whole state is in the cluster."""

    def __init__(self) -> None:
        self._tables = _lent(place(tables()))
        self._lent: dict[int, tuple[Any, Any]] = {}

    def empty(self, n: int) -> ClusterState:
        return place(clusters.empty(n, formulas=True))

    def place(self, table: T) -> T:
        return place(table)

    def fetch(self, kept: T) -> T:
        made: Any = kept
        if isinstance(kept, ClusterState):
            seen = {name: getattr(kept, name).get() for name in ("row", "pool", "histogram")}
            made = clusters.empty(0, formulas=True)._replace(**seen)
        elif hasattr(kept, "get"):
            made = kept.get()
        return made

    def start(self, cluster: ClusterState, rows: NDArray[np.intp], *begin: Any) -> None:
        fresh = clusters.empty(len(rows), formulas=True)
        clusters.begin(fresh, np.arange(len(rows)), *begin)
        where = place(rows)
        pairs: list[tuple[Any, Any]] = [*zip(cluster, place(fresh), strict=True)]
        for column, values in pairs:
            column[where] = values

    def begin(self, facts: ClusterFacts, rows: NDArray[np.intp]) -> None:
        """Nothing to prepare."""

    def scale(self, facts: ClusterFacts, cluster: ClusterState, rows: Any, desired: Any, weights: Any) -> None:
        self._launch(_kernels().scale, rows, facts, cluster, rows, desired, weights)

    def advance(self, facts: ClusterFacts, cluster: ClusterState, rows: Any, seconds: int) -> None:
        self._launch(_kernels().advance, rows, facts, cluster, self._tables, rows, seconds)

    def count_latencies(self, facts: ClusterFacts, cluster: ClusterState, rows: Any) -> None:
        self._launch(_kernels().count_latencies, rows, facts, cluster, self._tables, rows)

    def measure(self, facts: Any, sensors: Any, cluster: Any, _: Any, rows: Any, latency: bool, out: Any) -> None:
        self._launch(_kernels().measure, rows, facts, sensors, cluster, self._tables, rows, latency, out)

    def _launch(self, kernel: Any, rows: Any, *arguments: Any) -> None:
        if len(rows):
            kernel[-(-len(rows) // THREADS), THREADS](*map(self._argument, arguments))

    def _argument(self, value: Any) -> Any:
        """What numba takes for `value`; kept for tables that live as long as the batch."""
        if not isinstance(value, (ClusterFacts, ClusterState, clusters.Sensors)):
            return _lent(value)
        known, lent = self._lent.get(id(value), (None, None))
        if known is not value:
            lent = _lent(value)
            self._lent[id(value)] = value, lent
        return lent


def _lent(value: Any) -> Any:
    """The same memory as numba's arrays."""
    from numba import cuda

    if isinstance(value, Records):
        whole = cuda.as_cuda_array(value.words, sync=False).view(value.dtype)
        return whole.reshape(*value.shape)
    if isinstance(value, tuple):
        return type(value)(*map(_lent, value))
    if hasattr(value, "__cuda_array_interface__"):
        return cuda.as_cuda_array(value, sync=False)
    return value


class Kernels(NamedTuple):
    """The kernels of the fluid level and its measurement, one thread a row."""

    scale: Any
    advance: Any
    count_latencies: Any
    measure: Any


@cache
def _kernels() -> Kernels:
    """Compiled at their first call, some ten seconds in all."""
    from numba import cuda
    from numba.cuda.core import config

    # A batch may be small, in tests or while few episodes begin; that is no reason for a warning.
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    fast: Callable[[Any], Any] = cuda.jit(fastmath=True)
    scale_rows, advance_rows, count_rows = fluid.scale, fluid.advance, fluid.count_latencies
    measure_row = sensing.measure_row

    @cuda.jit
    def scale(facts, cluster, rows, desired, weights):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < len(rows):
            scale_rows(facts, cluster, rows[i : i + 1], desired[i : i + 1], weights[i : i + 1])

    @fast
    def advance(facts, cluster, tables, rows, seconds):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < len(rows):
            advance_rows(facts, cluster, tables, rows[i : i + 1], seconds)

    @fast
    def count_latencies(facts, cluster, tables, rows):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < len(rows):
            count_rows(facts, cluster, tables, rows[i : i + 1])

    @cuda.jit
    def measure(facts, sensors, cluster, tables, rows, latency, out):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < len(rows):
            measure_row(facts, sensors, cluster, tables, rows[i], latency, out, i)

    return Kernels(scale, advance, count_latencies, measure)
