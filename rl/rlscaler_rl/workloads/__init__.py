"""Workloads: what episodes are made of, in parts for training, tuning and testing."""

from rlscaler_rl.workloads.episodes import blocks, episodes
from rlscaler_rl.workloads.errors import WorkloadError
from rlscaler_rl.workloads.names import EXTRAS, HELD_OUT, MIXED, NAMES, PATTERNS, TRACES, VARIED, Part
from rlscaler_rl.workloads.recording import Recording, cut
from rlscaler_rl.workloads.training import TraceLoads

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
