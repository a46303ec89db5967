"""Workloads: the loads of episodes, in parts for training, tuning and testing."""

from typing import TYPE_CHECKING, Any

from rlscaler_rl.workloads.library import blocks
from rlscaler_rl.workloads.names import EXTRAS, HELD_OUT, MIXED, NAMES, PATTERNS, TRACES, VARIED, Part, WorkloadError
from rlscaler_rl.workloads.recording import Recording, cut
from rlscaler_rl.workloads.trace_loads import TraceLoads

if TYPE_CHECKING:
    from rlscaler_rl.workloads.draw import episodes

__all__ = [
    "EXTRAS",
    "HELD_OUT",
    "MIXED",
    "NAMES",
    "PATTERNS",
    "TRACES",
    "VARIED",
    "Part",
    "Recording",
    "TraceLoads",
    "WorkloadError",
    "blocks",
    "cut",
    "episodes",
]


def __getattr__(name: str) -> Any:
    """`episodes` needs the simulator, which takes a second to import; `rlscaler trace --help` does not."""
    if name == "episodes":
        from rlscaler_rl.workloads.draw import episodes

        return episodes
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
