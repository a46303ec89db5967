"""How the emulated service queues: p95 latency and late share by replicas, utilization and routing.

    python benchmarks/service_calibration.py [--flavour cpu] [--routing least-loaded] [--seconds 20] [--time-scale 10]

Three values for each point. `http`: real requests over HTTP to one process with that many replicas behind the
fleet's router, in real time; service times and SLO are divided by the time scale (default 10, and results are
scaled back) so that short runs hold enough requests, which makes HTTP's own millisecond weigh ten times as much.
`same`: the same router, arrivals and service times without HTTP, on a clock that jumps; what differs from `http`
is the emulation's error. `long`: the same for many more requests: what a simulator of this service should show.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import click
import numpy as np
from rich.console import Console
from rich.table import Table

from rlscaler_loadgen.arrivals import poisson_arrivals
from rlscaler_loadgen.service.app import Listen, Service
from rlscaler_loadgen.service.clock import JumpingLoop
from rlscaler_loadgen.service.profile import FLAVOURS, Flavour
from rlscaler_loadgen.service.router import ROUTINGS, Pod, Router, Routing, UnavailableError

REPLICAS, RHOS = (1, 2, 4, 8), (0.5, 0.7, 0.9)
WAYS = ("http", "same", "long")
BODY = {"inputs": [{"name": "input", "shape": [1], "datatype": "FP32", "data": [1.0]}]}


def make_router(flavour: Flavour, replicas: int, routing: Routing, seed: int) -> Router:
    router = Router({flavour.name: flavour}, seed, routing=routing, weights={"gpu": 1.0, "cpu": 1.0})
    for index in range(replicas):
        router.apply(Pod(f"{flavour.name}-{index}", flavour.name))
    return router


async def http_latencies(router: Router, times: np.ndarray) -> list[float]:
    """Seconds from the scheduled time to the answer; a rejection is infinite."""
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
            async with session.post("/v2/models/chat/infer", json=BODY) as response:
                await response.read()
                latencies.append(loop.time() - due if response.status == 200 else np.inf)

        for time in times:
            await asyncio.sleep(begin + time - loop.time())
            clients.create_task(ask(begin + time))
    return latencies


async def exact_latencies(router: Router, times: np.ndarray) -> list[float]:
    """The same without HTTP, on the running loop's clock."""
    loop, latencies = asyncio.get_running_loop(), []

    async def ask() -> None:
        begun = loop.time()
        try:
            await router.serve()
            latencies.append(loop.time() - begun)
        except UnavailableError:
            latencies.append(np.inf)

    async with asyncio.TaskGroup() as clients:
        for time in times:
            await asyncio.sleep(time - loop.time())
            clients.create_task(ask())
    return latencies


def figures(latencies: list[float], slo_seconds: float) -> dict[str, float]:
    values = np.asarray(latencies)
    return {
        "requests": len(values),
        "p95_ms": round(1000 * float(np.percentile(values, 95, method="higher")), 1),
        "late_percent": round(100 * float(np.mean(values > slo_seconds)), 3),
    }


def measure(flavour: Flavour, replicas: int, routing: Routing, seed: int, times: Any, jumping: bool) -> list[float]:
    """Latencies in seconds, over HTTP in real time or exactly on a jumping clock."""

    async def run() -> list[float]:
        router = make_router(flavour, replicas, routing, seed)
        return await (exact_latencies if jumping else http_latencies)(router, times)

    with asyncio.Runner(loop_factory=JumpingLoop if jumping else None) as runner:
        return runner.run(run())


@click.command()
@click.option("--flavour", type=click.Choice(list(FLAVOURS)), default="cpu", show_default=True)
@click.option("--routing", type=click.Choice(ROUTINGS), default="least-loaded", show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="Length of each run over HTTP.")
@click.option("--time-scale", default=10.0, show_default=True, help="How much faster HTTP runs than the service.")
@click.option("--requests", default=20_000, show_default=True, help="Requests of each long run.")
@click.option("--slo-ms", default=1000.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Also write the rows as JSON.")
def main(
    flavour: str,
    routing: Any,
    seconds: float,
    time_scale: float,
    requests: int,
    slo_ms: float,
    seed: int,
    out: Path | None,
) -> None:
    """Print p95 latency and late share, over HTTP and exactly."""
    nominal, slo = FLAVOURS[flavour], slo_ms / 1000
    fast = replace(nominal, mean_seconds=nominal.mean_seconds / time_scale)
    rows: list[dict[str, Any]] = []
    for replicas in REPLICAS:
        for rho in RHOS:
            rate = rho * replicas * nominal.requests_per_second
            arrivals = poisson_arrivals(np.full(round(requests / rate) + 1, rate), np.random.default_rng([seed, 1]))
            short = poisson_arrivals(np.full(round(seconds * time_scale), rate), np.random.default_rng([seed, 2]))

            over_http = measure(fast, replicas, routing, seed, short / time_scale, jumping=False)
            rows.append(
                {
                    "replicas": replicas,
                    "rho": rho,
                    "http": figures([latency * time_scale for latency in over_http], slo),
                    "same": figures(measure(nominal, replicas, routing, seed, short, jumping=True), slo),
                    "long": figures(measure(nominal, replicas, routing, seed, arrivals, jumping=True), slo),
                }
            )
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    table = Table(title=f"{flavour}, {routing}, SLO {slo_ms:.0f} ms, time scale {time_scale:g} ({machine})")
    for heading in ("replicas", "rho", "requests", *(f"{what} {how}" for what in ("p95", "late %") for how in WAYS)):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = [row["replicas"], row["rho"], row["http"]["requests"]]
        cells += [row[way][figure] for figure in ("p95_ms", "late_percent") for way in WAYS]
        table.add_row(*map(str, cells))
    Console(width=110).print(table)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        content = {"flavour": flavour, "routing": routing, "time_scale": time_scale, "machine": machine, "rows": rows}
        out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
