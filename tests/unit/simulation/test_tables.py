"""The queueing tables against exact values and against the request level."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.cluster import ROUTERS
from rlscaler_rl.simulation.scenario import from_rate
from rlscaler_rl.simulation.tables import CVS, RHO_POINTS, SERVICE_HIGH, SERVICE_POINTS, tables


@pytest.mark.parametrize(("servers", "rho"), [(2, 0.7), (4, 0.7), (8, 0.8), (8, 0.9)])
def test_one_central_queue_waits_as_erlang_says(servers, rho):
    """The fitted table against the two-moment approximation of M/G/c, where it is good: at the fitted tail."""
    load, blocking = servers * rho, 1.0
    for k in range(1, servers + 1):
        blocking = load * blocking / (k + load * blocking)
    erlang = blocking / (1 - rho * (1 - blocking))
    theta = 2 * servers / (1 + CVS[1] ** 2)
    probability, decay = tables().waiting[ROUTERS.index("central"), 1, servers, round(rho * (RHO_POINTS - 1))]
    wait = 1.0 / (servers * (1 - rho))
    stated = probability * np.exp(-decay * (1 - rho) * wait)
    assert stated == pytest.approx(erlang * np.exp(-theta * (1 - rho) * wait), rel=0.15)


def test_routers_that_see_more_let_wait_less():
    later = tables().waiting[:, 1, 8, round(0.8 * (RHO_POINTS - 1))].astype(float)
    tail = later[:, 0] * np.exp(-later[:, 1] * 0.2 * 3.0)
    ranked = [ROUTERS[i] for i in np.argsort(tail)]
    assert ranked == ["central", "least_loaded", "power_of_two", "round_robin", "random"]


@pytest.mark.parametrize("index", range(len(CVS)))
def test_service_times_have_mean_one(index):
    tail = tables().service[index].astype(float)
    mean = np.trapezoid(tail, np.linspace(0, SERVICE_HIGH, SERVICE_POINTS))
    assert mean == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("router", ROUTERS)
@pytest.mark.parametrize(
    ("pool", "servers", "rho"), [(1, 1, 0.7), (1, 2, 0.8), (1, 4, 0.8), (1, 8, 0.7), (1, 8, 0.9), (0, 1, 0.9)]
)
def test_steady_lateness_of_the_fluid_level_is_that_of_the_request_level(router, pool, servers, rho):
    fluid, exact = (late_share(level, router, pool, servers, rho) for level in ("fluid", "request"))
    assert fluid == pytest.approx(exact, rel=0.35, abs=0.02)


def late_share(level, router: str, pool: int, servers: int, rho: float) -> float:
    present = (pool == 0, pool == 1)
    replicas = tuple(servers if there else 0 for there in present)
    rate = np.full((16, 900), rho * servers * (20.0, 4.0)[pool])
    scenarios = from_rate(
        rate,
        np.arange(16),
        router=ROUTERS.index(router),
        present=present,
        initial=replicas,
        min_replicas=replicas,
        max_replicas=replicas,
    )
    batch = Batch(scenarios, level=level)
    batch.advance(900)
    return float(batch.cluster.row["late"].sum() / batch.cluster.row["requests"].sum())
