"""A service, a history of it, and a verdict, small enough to be played in no time."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.tables import make_params
from rlscaler_loadgen.traces import Trace
from rlscaler_rl.evaluation.service_tuning.history import History, prepare
from rlscaler_rl.evaluation.service_tuning.service import Service


def make_service(**columns) -> Service:
    """The demo's, or another."""
    params = make_params(1, **({"requests_per_second": (20.0, 4.0)} | columns))
    return Service("chat", "demo", params, 99.0, (2, 4), (), 2)


def waves(seconds: int = 9600, low: float = 20.0, high: float = 90.0, period: float = 1000.0) -> np.ndarray:
    return low + (high - low) * (1 - np.cos(2 * np.pi * np.arange(seconds) / period)) / 2


@pytest.fixture
def service() -> Service:
    return make_service()


@pytest.fixture
def history(service) -> History:
    return prepare(Trace(waves(), 1.0), "waves.csv", service)
