"""The queueing tables against exact values and against a request-by-request simulation."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.scenario import from_rate
from rlscaler_rl.simulation.tables import CVS, RHO_POINTS, SERVICE_HIGH, SERVICE_POINTS, lognormal_parameters, tables

REQUESTS = 400_000


def test_erlang_c_of_one_server_is_its_utilization():
    assert np.allclose(tables().erlang_c[1], np.linspace(0, 1, RHO_POINTS), atol=1e-6)


def test_erlang_c_of_two_servers_is_the_textbook_formula():
    rho = np.linspace(0, 1, RHO_POINTS)[1:-1]
    assert np.allclose(tables().erlang_c[2][1:-1], 2 * rho**2 / (1 + rho), atol=1e-6)


@pytest.mark.parametrize("index", range(len(CVS)))
def test_service_times_have_mean_one(index):
    tail = tables().service[index].astype(float)
    mean = np.trapezoid(tail, np.linspace(0, SERVICE_HIGH, SERVICE_POINTS))
    assert mean == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize(
    ("pool", "servers", "rho"),
    [(1, 1, 0.7), (1, 2, 0.8), (1, 4, 0.8), (1, 4, 0.9), (1, 8, 0.9), (0, 1, 0.9), (0, 2, 0.95)],
)
def test_steady_lateness_is_that_of_least_loaded_routing(pool, servers, rho):
    """The fluid model's tail, against a queue per pod with each request sent to the shortest."""
    rps = (20.0, 4.0)[pool]
    arrivals = rho * servers * rps
    fluid = _fluid_late_share(pool, servers, arrivals)
    rng = np.random.default_rng(servers)
    mu, sigma = lognormal_parameters(0.5)
    service = np.exp(mu + sigma * rng.standard_normal(REQUESTS)) / rps
    exact = _shortest_queue(np.cumsum(rng.exponential(1 / arrivals, REQUESTS)), service, servers, 1.0)
    # Two moments and a central queue stand for the real thing: a few percent off where lateness matters, and
    # up to twice off where it hardly exists.
    assert fluid == pytest.approx(exact, rel=0.25, abs=0.015)


def _fluid_late_share(pool: int, servers: int, arrivals: float) -> float:
    present = (pool == 0, pool == 1)
    replicas = tuple(servers if there else 0 for there in present)
    options = {"present": present, "initial": replicas, "min_replicas": replicas, "max_replicas": replicas}
    scenarios = from_rate(np.full((1, 60), arrivals), [0], **options)
    scenarios.arrivals[:] = arrivals
    batch = Batch(scenarios)
    batch.advance(60)
    return float(batch.cluster.row["late"][0] / batch.cluster.row["requests"][0])


@njit
def _shortest_queue(arrivals, service, servers, slo):
    held = 4096
    finish = np.zeros((servers, held))
    head, tail = np.zeros(servers, np.int64), np.zeros(servers, np.int64)
    free = np.zeros(servers)
    late = 0
    for i in range(len(arrivals)):
        now, best, shortest = arrivals[i], -1, 1 << 30
        for k in range(servers):
            s = (k + i) % servers
            while head[s] < tail[s] and finish[s, head[s] % held] <= now:
                head[s] += 1
            if tail[s] - head[s] < shortest:
                best, shortest = s, tail[s] - head[s]
        done = max(now, free[best]) + service[i]
        free[best] = done
        finish[best, tail[best] % held] = done
        tail[best] += 1
        late += done - now > slo
    return late / len(arrivals)
