"""How the emulated service queues, and what the simulators make of it: p95 latency and late share.

    python benchmarks/service_calibration.py [--http "least-loaded"] [--seconds 20] [--time-scale 2] [--out FILE]

For every routing, flavour, number of replicas and utilization, side by side:

`http`     real requests over HTTP to one process with that many replicas behind the fleet's router, in real time;
           service times and SLO are divided by the time scale, and results scaled back, so that a short run holds
           enough requests (and HTTP's own millisecond weighs as much more). Only the points of `--http`.
`same`     the same router, arrivals and service times without HTTP on a clock that jumps: what differs from `http` is
           the emulation's own error. Only the points of `--http`.
`service`  the same for many more requests.
`request`  the request level of the simulator.
`fluid`    the fluid level of the simulator.

A request that is refused, or given up after the client's timeout of 5 s, is late and has an infinite latency; the p95
of simulated episodes is read from their histograms, as a client sees it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import click
import numpy as np
from rich.console import Console
from rich.table import Table

from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_dev.clock import JumpingLoop
from rlscaler_loadgen.patterns import poisson_arrivals
from rlscaler_loadgen.service.app import Listen, Service
from rlscaler_loadgen.service.replica import FLAVOURS, Flavour
from rlscaler_loadgen.service.router import ROUTINGS, Pod, Router, Routing, UnavailableError
from rlscaler_rl.baselines.simple import Unscaled
from rlscaler_rl.simulation.cluster import ROUTERS
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.levels import LEVELS, LevelName
from rlscaler_rl.simulation.scenario import from_rate

REPLICAS, RHOS = (1, 2, 4, 8), (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
HTTP_RHOS = (0.5, 0.8, 0.95)
WAYS = ("http", "same", "service", *LEVELS[::-1])
BODY = {"inputs": [{"name": "input", "shape": [1], "datatype": "FP32", "data": [1.0]}]}
SLO, TIMEOUT, EPISODES = 1.0, 5.0, 16


def make_router(flavour: Flavour, replicas: int, routing: Routing, seed: int) -> Router:
    router = Router({flavour.name: flavour}, seed, routing=routing, weights={"gpu": 1.0, "cpu": 1.0})
    for index in range(replicas):
        router.apply(Pod(f"{flavour.name}-{index}", flavour.name))
    return router


async def http_latencies(router: Router, times: np.ndarray, patience: float) -> list[float]:
    """Seconds from the scheduled time to the answer; a rejection or a client that gave up is infinite."""
    loop = asyncio.get_running_loop()
    service = Service(router, "calibration", "chat", resource_metrics=False)
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        service.serving(Listen(port=0, metrics_port=0)) as (url, _),
        aiohttp.ClientSession(url, connector=connector) as session,
        asyncio.TaskGroup() as clients,
    ):
        begin, latencies = loop.time() + 0.1, []

        async def ask(due: float) -> None:
            try:
                async with asyncio.timeout_at(due + patience), session.post("/v2/models/chat/infer", json=BODY) as got:
                    await got.read()
                    latencies.append(loop.time() - due if got.status == 200 else np.inf)
            except TimeoutError:
                latencies.append(np.inf)

        for time in times:
            await asyncio.sleep(begin + time - loop.time())
            clients.create_task(ask(begin + time))
    return latencies


async def exact_latencies(router: Router, times: np.ndarray, patience: float) -> list[float]:
    """The same without HTTP, on the running loop's clock."""
    loop, latencies = asyncio.get_running_loop(), []

    async def ask() -> None:
        begun = loop.time()
        try:
            async with asyncio.timeout_at(begun + patience):
                await router.serve()
            latencies.append(loop.time() - begun)
        except (UnavailableError, TimeoutError):
            latencies.append(np.inf)

    async with asyncio.TaskGroup() as clients:
        for time in times:
            await asyncio.sleep(time - loop.time())
            clients.create_task(ask())
    return latencies


def figures(latencies: list[float]) -> dict[str, float]:
    values = np.asarray(latencies)
    p95 = 1000 * min(float(np.percentile(values, 95, method="higher")), TIMEOUT)
    return {"requests": len(values), "p95_ms": p95, "late_percent": 100 * float(np.mean(values > SLO))}


def measure(
    flavour: Flavour, replicas: int, routing: Routing, seed: int, times: Any, patience: float, jumping: bool
) -> list[float]:
    """Latencies in seconds, over HTTP in real time or exactly on a jumping clock."""

    async def run() -> list[float]:
        router = make_router(flavour, replicas, routing, seed)
        return await (exact_latencies if jumping else http_latencies)(router, times, patience)

    with asyncio.Runner(loop_factory=JumpingLoop if jumping else None) as runner:
        return runner.run(run())


def over_http(
    flavour: Flavour, replicas: int, routing: Routing, seed: int, seconds: float, scale: float, rho: float
) -> Any:
    """`http` and `same` of one point."""
    rate = rho * replicas * flavour.requests_per_second
    times = poisson_arrivals(np.full(round(seconds * scale), rate), np.random.default_rng([seed, 2]))
    fast = replace(flavour, mean_seconds=flavour.mean_seconds / scale)
    taken = measure(fast, replicas, routing, seed, times / scale, TIMEOUT / scale, jumping=False)
    same = measure(flavour, replicas, routing, seed, times, TIMEOUT, jumping=True)
    return {"http": figures([latency * scale for latency in taken]), "same": figures(same)}


def simulated(level: LevelName, flavour: Flavour, replicas: int, routing: Routing, rho: float, requests: int) -> Any:
    """Both figures of EPISODES episodes of a constant load on constant replicas."""
    rate, pool = rho * replicas * flavour.requests_per_second, int(flavour.name == "cpu")
    seconds = 5 * round(max(requests / rate / EPISODES, 300) / 5)
    pods = tuple(replicas if index == pool else 0 for index in range(2))
    settled = {"present": (pool == 0, pool == 1), "initial": pods, "min_replicas": pods, "max_replicas": pods}
    router = ROUTERS.index(routing.replace("-", "_"))
    load = np.full((EPISODES, seconds), rate)
    result = run(from_rate(load, np.arange(EPISODES), router=router, **settled), Unscaled(), level=level).result
    weight = result.requests / result.requests.sum()
    return {
        "requests": int(result.requests.sum()),
        "p95_ms": float(result.p95_ms @ weight),
        "late_percent": float(result.late_percent @ weight),
    }


@click.command()
@click.option("--http", "http_routings", multiple=True, type=click.Choice(ROUTINGS), default=("least-loaded",))
@click.option("--seconds", default=20.0, show_default=True, help="Length of each run over HTTP.")
@click.option("--time-scale", default=2.0, show_default=True, help="How much faster HTTP runs than the service.")
@click.option("--requests", default=20_000, show_default=True, help="Requests of each point without HTTP.")
@click.option("--seed", default=1, show_default=True)
@out_option
def main(
    http_routings: tuple[Routing, ...], seconds: float, time_scale: float, requests: int, seed: int, out: Path | None
) -> None:
    """Print p95 latency and late share at the service and at both levels of the simulator."""
    here = machine()
    rows: list[dict[str, Any]] = []
    for routing in ROUTINGS:
        for flavour in FLAVOURS.values():
            for replicas in REPLICAS:
                for rho in RHOS:
                    row: dict[str, Any] = {
                        "routing": routing,
                        "flavour": flavour.name,
                        "replicas": replicas,
                        "rho": rho,
                    }
                    if routing in http_routings and rho in HTTP_RHOS:
                        row |= over_http(flavour, replicas, routing, seed, seconds, time_scale, rho)
                    rate = rho * replicas * flavour.requests_per_second
                    rng = np.random.default_rng([seed, 1])
                    times = poisson_arrivals(np.full(round(requests / rate) + 1, rate), rng)
                    row["service"] = figures(measure(flavour, replicas, routing, seed, times, TIMEOUT, jumping=True))
                    for level in LEVELS:
                        row[level] = simulated(level, flavour, replicas, routing, rho, requests)
                    rows.append(row)
        title = f"{routing} ({here['processor']}, {here['cpus']} cores)"
        Console(width=120).print(table_of([row for row in rows if row["routing"] == routing], title))
        write(out, {"slo_seconds": SLO, "time_scale": time_scale, "machine": here, "rows": rows}, indent=1)


def table_of(rows: list[dict[str, Any]], title: str) -> Table:
    table = Table(title=title)
    for heading in ("pool", "rho", *(f"{what} {way}" for what in ("p95", "late %") for way in WAYS)):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [f"{row['replicas']} {row['flavour']}", f"{row['rho']}"]
        cells += [f"{row[way]['p95_ms']:.0f}" if way in row else "" for way in WAYS]
        cells += [f"{row[way]['late_percent']:.2f}" if way in row else "" for way in WAYS]
        table.add_row(*cells)
    return table


if __name__ == "__main__":
    main()
