"""The size that the pods of one pool should have."""

from __future__ import annotations

import math
from typing import NamedTuple


class PodSize(NamedTuple):
    """Recommended requests of each pod's container; NaN where a resource is not sized, or too little was seen."""

    cpu: float = math.nan
    """Cores."""
    memory: float = math.nan
    """Bytes."""
    least_memory: float = math.nan
    """Bytes below which memory must not be lowered; NaN: it is not to be lowered at all."""
