"""Precomputed queueing tables: how likely a request takes longer than t.

A request's latency is its wait plus its service time. Service times S are lognormal with mean 1 (all times
here are in units of the pool's mean service time) and coefficient of variation `CVS[i]`. In a steady state of c pods
at utilization rho behind a router the wait exceeds y with probability p exp(-theta (1 - rho) y); p and theta are read
from `WAITING`, which was fitted to the request level. (For one central queue they are close to Erlang's delay formula
and 2 c / (1 + cv^2), the two-moment approximation of M/G/c; Whitt, "Approximations for the GI/G/m queue", 1993.) Then

    P(latency > x) = P(S > x) + p G(x, theta (1 - rho) x),   G(x, z) = integral_0^x exp(-z (1 - s/x)) f(s) ds

and G is tabulated. A fluid backlog that takes `w` to clear shifts the service time: P(S > x - w).
"""

from __future__ import annotations

import json
from functools import lru_cache
from math import erf, log, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]

CVS = (0.3, 0.5, 0.8)
"""Coefficients of variation of the service time for which tables exist."""

WAITING = Path(__file__).with_name("waiting.json")
"""Results of benchmarks/fit_waiting.py."""

X_LOW, X_HIGH, X_POINTS = 0.1, 120.0, 60
Z_HIGH, Z_POINTS = 24.0, 97
SERVICE_HIGH, SERVICE_POINTS = 16.0, 257
SERVERS, RHO_POINTS = 64, 101

X_SCALE = (X_POINTS - 1) / log(X_HIGH / X_LOW)
Z_SCALE = (Z_POINTS - 1) / Z_HIGH
SERVICE_SCALE = (SERVICE_POINTS - 1) / SERVICE_HIGH


class LatencyTables(NamedTuple):
    """Shared by all episodes; float32, read by the compiled kernels."""

    delayed: Float32  # (cv, X_POINTS, Z_POINTS) G(x, z), x log-spaced, z uniform
    service: Float32  # (cv, SERVICE_POINTS) P(S > x), x uniform
    waiting: Float32  # (router, cv, SERVERS + 1, RHO_POINTS, 2) p and theta, rho uniform; without a server p is 1


@lru_cache(maxsize=1)
def tables() -> LatencyTables:
    """The tables, computed once (about 0.1 s)."""
    return LatencyTables(
        np.stack([_delayed(cv) for cv in CVS]).astype(np.float32),
        np.stack([_service(cv) for cv in CVS]).astype(np.float32),
        _waiting().astype(np.float32),
    )


def x_position(x: NDArray[np.float64]) -> Float32:
    """Fractional row of `LatencyTables.delayed` for latencies in units of the mean service time."""
    return np.clip(np.log(np.maximum(x, 1e-9) / X_LOW) * X_SCALE, 0, X_POINTS - 1.001).astype(np.float32)


def lognormal_parameters(cv: float) -> tuple[float, float]:
    """(mu, sigma) of log S for mean 1."""
    sigma = sqrt(log(1 + cv * cv))
    return -sigma * sigma / 2, sigma


def service_exceeds(x: NDArray[np.float64], cv: float) -> NDArray[np.float64]:
    """P(S > x), x in mean service times."""
    mu, sigma = lognormal_parameters(cv)
    score = (np.log(np.maximum(x, 1e-12)) - mu) / (sigma * sqrt(2))
    return np.array([0.5 * (1 - erf(value)) for value in score])


def _service(cv: float) -> NDArray[np.float64]:
    return service_exceeds(np.linspace(0, SERVICE_HIGH, SERVICE_POINTS), cv)


def _delayed(cv: float, points: int = 2000) -> NDArray[np.float64]:
    """G on the grid, by summing the service time's probability mass at `points` quantile midpoints."""
    edges = np.geomspace(1e-3, 40.0, points + 1)
    mass = -np.diff(service_exceeds(edges, cv))
    middle = np.sqrt(edges[1:] * edges[:-1])
    z = np.linspace(0, Z_HIGH, Z_POINTS)
    result = np.empty((X_POINTS, Z_POINTS))
    for row, x in enumerate(np.geomspace(X_LOW, X_HIGH, X_POINTS)):
        left = 1 - middle[middle <= x] / x
        result[row] = np.exp(-np.outer(z, left)) @ mass[middle <= x]
    return result


def _waiting() -> NDArray[np.float64]:
    """Values of `WAITING` at its points, interpolated by the logarithms over log servers and rho."""
    stated = json.loads(WAITING.read_text(encoding="utf-8"))
    servers, rho = np.log(stated["servers"]), np.array(stated["rho"])
    points = np.log(stated["values"]).reshape(len(stated["router"]), len(stated["cv"]), len(servers), len(rho), 2)
    result = np.zeros((*points.shape[:2], SERVERS + 1, RHO_POINTS, 2))
    fine, places = np.linspace(0, 1, RHO_POINTS), np.log(np.arange(1, SERVERS + 1))
    for router, cv, value in np.ndindex(*points.shape[:2], 2):
        ends = ([_NEVER], [0.0]) if value == 0 else ([], [])
        grid = np.concatenate([[0.0][: len(ends[0])], rho, [1.0][: len(ends[1])]])
        rows = [
            np.interp(fine, grid, np.concatenate([ends[0], row, ends[1]])) for row in points[router, cv, :, :, value]
        ]
        columns = [np.interp(places, servers, column) for column in np.stack(rows).T]
        result[router, cv, 1:, :, value] = np.exp(np.stack(columns, axis=1))
    result[:, :, 0, :, 0] = 1.0
    return result


_NEVER = float(np.log(1e-6))
"""Log of the probability of waiting at no load."""
