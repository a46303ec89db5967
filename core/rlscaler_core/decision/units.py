"""Units of the load and latencies of the objective: by number in `Params`, by name in the spec."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray


class LoadUnit(IntEnum):
    """Unit of a service's arrivals and of its replicas' capacity; see `LOADS`."""

    REQUESTS = 0
    TOKENS = 1
    CONCURRENCY = 2


class LatencySignal(IntEnum):
    """The latency that `Params.slo_ms` bounds."""

    END_TO_END = 0
    FIRST_TOKEN = 1
    OUTPUT_TOKEN = 2


UnitName = Literal["requests", "tokens", "concurrency"]
"""Names of `LoadUnit` in the spec and in manifests, in order."""

SignalName = Literal["endToEnd", "ttft", "tpot"]
"""Names of `LatencySignal` in the spec and in manifests, in order."""

UNITS: tuple[UnitName, ...] = get_args(UnitName)
SIGNALS: tuple[SignalName, ...] = get_args(SignalName)

LOADS: dict[UnitName, str] = {"requests": "requests/s", "tokens": "tokens/s", "concurrency": "concurrent requests"}
"""Unit of measure of a load, for people."""

_REQUEST = np.array([1.0, 1024.0, 1.0])
"""Approximate weight of a request, by `LoadUnit`: conversations of the public Azure traces have 1,366 tokens, questions
about code 2,076."""


def about_a_request(unit: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return the approximate weight of a request (N,) in a unit (N,).

    A load divided by it is in requests, to tell chance from a jump and next to nothing from a load. It decides no
    replicas: these follow from the load and the capacity of a replica, which are in the same unit.
    """
    weights: NDArray[np.float64] = _REQUEST[unit]
    return weights
