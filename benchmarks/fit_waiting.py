"""Fit the fluid level's queueing table to the request level's own queues.

    python benchmarks/fit_waiting.py [--requests 200000] [--out rl/rlscaler_rl/simulation/waiting.json]

For every router, spread of service times, number of replicas and utilization: requests go through the router and the
queues of the request level in a steady state, none refused and none given up. The tail of their latency is then
described by P(S > x) + p G(x, theta x) (see rlscaler_rl.simulation.tables), p and theta by least squares on the
logarithm of the tail between `TAILS`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.optimize import least_squares

from rlscaler_rl.simulation.cluster import POOL, RANDOM, ROUTERS, ROW, ROW_FACTS, records
from rlscaler_rl.simulation.pods import uniform
from rlscaler_rl.simulation.queues import enqueue, no_requests
from rlscaler_rl.simulation.requests import pick
from rlscaler_rl.simulation.tables import CVS, WAITING, lognormal_parameters, service_exceeds

Float = NDArray[np.float64]

SERVERS = (1, 2, 4, 8, 16, 32)
RHOS = (0.15, 0.3, 0.45, 0.6, 0.7, 0.78, 0.85, 0.9, 0.94, 0.97)
TAILS = (1e-3, 0.5)
"""The part of the latency's tail that is fitted: late shares and percentiles from the median up."""

PRIOR = 0.1
"""Weight of the mean wait's own probability and decay: determines the parameters that the tail alone leaves open."""

LATENCIES = np.geomspace(0.3, 60.0, 60)
"""Mean service times."""

FINE, EDGES = np.linspace(0.0, 60.0, 6001), np.geomspace(1e-3, 40.0, 401)


@njit(error_model="numpy")
def waits(
    held: Any, row: Any, pool: Any, row_fact: Any, rate: float, mu: float, sigma: float, warmup: int, out: Float
) -> None:
    """Fill `out` with waiting times, in mean service times, of Poisson arrivals at `rate` per service time."""
    now = 0.0
    for i in range(warmup + len(out)):
        now -= np.log(1.0 - uniform(row_fact.key, 2, i)) / rate
        k, _ = pick(held, row, pool, row_fact, 0, 1, now)  # no request is refused: the limit is out of reach
        if i >= warmup:
            out[i - warmup] = max(held.free[0, 1, k] - now, 0.0)
        radius = np.sqrt(-2.0 * np.log(1.0 - uniform(row_fact.key, 3, i)))
        work = np.exp(mu + sigma * radius * np.cos(2.0 * np.pi * uniform(row_fact.key, 6, i)))
        enqueue(held, pool, row_fact, 0, 1, k, now, now, work)


def simulate(router: int, cv: int, servers: int, rho: float, requests: int) -> Float:
    forever = {"slo": 1e9, "timeout": 1e9, "queue_limit": 126}
    row_fact = records(ROW_FACTS, (1,), router=router, cv=cv, key=1 + servers, **forever)[0]
    pool = records(POOL, (1,), ready=servers)[0]
    out = np.empty(requests)
    mu, sigma = lognormal_parameters(CVS[cv])
    waits(no_requests(1), np.zeros(1, ROW)[0], pool, row_fact, rho * servers, mu, sigma, requests // 10, out)
    return out


def tail_of_latency(wait: Float, cv: int) -> Float:
    """P(wait + service > x) at LATENCIES; the service time is integrated, not drawn."""
    levels = np.sort(wait)[((np.arange(2000) + 0.5) * len(wait) / 2000).astype(int)]
    return np.interp(LATENCIES[:, None] - levels, FINE, service_exceeds(FINE, CVS[cv])).mean(axis=1)


def fit(wait: Float, cv: int, rho: float) -> tuple[float, float]:
    """Probability of waiting; decay of the wait's tail per mean service time, over 1 - rho."""
    observed, service = tail_of_latency(wait, cv), service_exceeds(LATENCIES, CVS[cv])
    in_tail = (observed > TAILS[0]) & (observed < TAILS[1])
    middle = np.sqrt(EDGES[1:] * EDGES[:-1])
    mass = -np.diff(service_exceeds(EDGES, CVS[cv]))
    behind = np.maximum(LATENCIES[:, None] - middle, 0.0)
    inside = mass * (middle <= LATENCIES[:, None])

    def residual(logs: Float) -> Float:
        probability, decay = np.exp(logs)
        model = service + probability * (np.exp(-decay * behind) * inside).sum(axis=1)
        apart = np.log(np.maximum(model, 1e-9) / observed)[in_tail]
        return np.append(apart, PRIOR * (logs - start))

    waiting = max(float(np.mean(wait > 0)), 1e-3)
    bounds = np.log([[1e-5, 1e-3], [1.5, 100.0]])
    start = np.clip(np.log([waiting, waiting / max(float(wait.mean()), 1e-4)]), *bounds)
    solution = least_squares(residual, start, bounds=bounds)
    probability, decay = np.exp(solution.x)
    return min(float(probability), 1.0), float(decay / (1 - rho))


@click.command()
@click.option("--requests", default=200_000, show_default=True, help="Of each point.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=WAITING, show_default=True)
def main(requests: int, out: Path) -> None:
    """Simulate, fit and write the table."""
    table = np.empty((len(ROUTERS), len(CVS), len(SERVERS), len(RHOS), 2))
    for router, cv, servers, rho in np.ndindex(table.shape[:-1]):
        if (SERVERS[servers] == 1 and router > 0) or router == RANDOM:
            table[router, cv, servers, rho] = table[0, cv, 0, rho]
        else:
            wait = simulate(router, cv, SERVERS[servers], RHOS[rho], requests)
            table[router, cv, servers, rho] = fit(wait, cv, RHOS[rho])
        if rho == len(RHOS) - 1:
            print(
                ROUTERS[router],
                CVS[cv],
                SERVERS[servers],
                table[router, cv, servers, [1, 4, 7]].round(3).tolist(),
                flush=True,
            )
    content = {
        "axes": ["router", "cv", "servers", "rho", "probability of waiting, decay per mean service time over 1 - rho"],
        "router": ROUTERS,
        "cv": CVS,
        "servers": SERVERS,
        "rho": RHOS,
        "values": [float(f"{value:.4g}") for value in table.ravel()],
    }
    out.write_text(json.dumps(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
