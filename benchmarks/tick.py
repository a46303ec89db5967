"""CPU time of the operator's own work for one batch of policies, and of it the longest for which nothing else ran.

    python benchmarks/tick.py [--policies 1000] [--own 0] [--budgets 0] [--rounds 5] [--out FILE]

The API server and Prometheus answer at once from memory. `--own` policies bring a query of their own, which is sent to
a server in another process. With `--budgets` the policies share so many RLScalingBudgets, and the same policies
without one are measured in the same run, in turns with them. `first` is the tick that takes all policies over, `quiet`
a sensing tick in which nothing changes, `action` one action interval. Other processes on the machine do not count.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
from kubernetes.aio.client import Configuration

from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.loop.wiring import build_engine
from rlscaler_operator.run.context import GarbageCollection
from rlscaler_operator.sensing.results import Answers, Reading
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.schedule import Due, Schedule

BEAT_SECONDS = 0.002


ANSWERS = """
import asyncio, re
from aiohttp import web

ROW = '{"metric":{"_":"v","_q":"%s"},"value":[1.5,"1"]}'

async def main():
    async def answer(request):
        numbers = re.findall('"_q", "([0-9]+)"', (await request.post())["query"]) or ["0"]
        rows = ",".join(ROW % number for number in numbers)
        text = '{"status":"success","data":{"resultType":"vector","result":[%s]}}' % rows
        return web.Response(text=text, content_type="application/json")

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
"""A Prometheus that gives every query the same sample."""


class Memory(Kube):
    """Takes every write."""

    requests = 0

    async def request(self, method: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        self.requests += 1
        await asyncio.sleep(0)
        return {"metadata": {"resourceVersion": "1"}}


def policy(name: str, own: bool) -> dict[str, Any]:
    target = {"deployment": name, "maxReplicas": 3, "requestsPerSecond": 10, "coldStartSeconds": 5}
    return {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "RLScalingPolicy",
        "metadata": {"namespace": "ns", "name": name, "uid": name, "generation": 1},
        "spec": {
            "mode": "Auto",
            "targets": {"cpu": target},
            "slo": {"latencyMilliseconds": 500},
            "policy": {"bundled": "rule"},
            "metrics": {"queries": {"arrivalRate": f'sum(rate(hits{{app="{name}"}}[60s]))'}} if own else {},
        },
    }


def budget(label: str, amount: float) -> dict[str, Any]:
    """A budget with a replica for each of the policies that have a label."""
    members = [{"name": "all", "matchLabels": {"budget": label}, "guaranteed": 0.5}]
    return {
        "metadata": {"name": f"budget-{label}", "uid": label, "generation": 1},
        "spec": {"pool": "cpu", "amount": amount, "members": members},
    }


class Bench:
    def __init__(self, policies: int, own: int, budgets: int, prometheus_url: str) -> None:
        settings = Settings(prometheus_url=prometheus_url, budgets=budgets > 0)
        self.kube = Memory(Configuration(host="http://127.0.0.1:9"))
        self.engine = build_engine(settings, self.kube)
        self.engine.shards.leases[0]._deadline = math.inf
        names = [f"service-{i}" for i in range(policies)]
        for i, name in enumerate(names):
            self.engine.registry.put(policy(name, i < own))
            deployment = {"metadata": {"namespace": "ns", "name": name}, "spec": {"replicas": 1}}
            self.engine.cache.put_deployment(deployment | {"status": {"readyReplicas": 1}})
        self.engine.acting = {0: 1}
        for i, name in enumerate(names if budgets else ()):
            self.engine.budgets.take_in_policy(("ns", name), {"budget": str(i % budgets)}, None)
        for number in range(budgets):
            self.engine.budgets.take_in(budget(str(number), policies / budgets))
        readings = {("ns", name): Reading(1.0, 1.0) for name in names}

        async def ask(_: Any, queries: list[Any]) -> Answers:
            return {query.name: readings for query in queries}

        self.engine.sensing.sources.ask = ask  # type: ignore[method-assign]
        self.policies = list(self.engine.registry)
        for served in self.policies:
            served.timing.schedule = Schedule.starting(30, 5, time.monotonic())
        self.longest = 0.0

    async def tick(self, due: Due) -> dict[str, float]:
        """CPU seconds, the most of them for which nothing else ran, and requests sent."""
        self.longest, self.kube.requests = 0.0, 0
        beat = asyncio.create_task(self._beat())
        began = time.process_time()
        engine = self.engine
        access = engine.sensing.access(self.policies[0])
        assert access is not None
        engine.background.launch(
            self.policies, engine.ticker.tick_batch(access, [(served, due) for served in self.policies])
        )
        while engine.background.tasks:
            await asyncio.wait(engine.background.tasks)
        seconds = time.process_time() - began
        beat.cancel()
        return {"cpu_seconds": seconds, "loop_held_seconds": self.longest, "requests": self.kube.requests}

    async def _beat(self) -> None:
        while True:
            before = time.process_time()
            await asyncio.sleep(BEAT_SECONDS)
            self.longest = max(self.longest, time.process_time() - before - BEAT_SECONDS)


Ticks = dict[str, list[dict[str, float]]]


async def run(policies: int, own: int, budgets: int, rounds: int, prometheus_url: str) -> dict[str, Any]:
    """Medians without budgets, and where there are any also with them."""
    benches = [Bench(policies, own, number, prometheus_url) for number in dict.fromkeys((0, budgets))]
    garbage = GarbageCollection()
    garbage.begin()
    rows: list[Ticks] = []
    for bench in benches:
        rows.append({"first": [await bench.tick(Due.SENSE)], "quiet": [], "action": []})
        await bench.tick(Due.SENSE)
    for _ in range(rounds):
        for bench, ticks in zip(benches, rows, strict=True):
            ticks["action"].append(await bench.tick(Due.ACTION))
            await bench.tick(Due.SENSE)
            ticks["quiet"].append(await bench.tick(Due.SENSE))
    garbage.end()
    for bench in benches:
        await bench.engine.sensing.sources.close()
        await bench.kube.close()
    figures = _medians(rows[0])
    return figures if not budgets else figures | {"with_budgets": _medians(rows[1])}


def _medians(rounds: Ticks) -> dict[str, dict[str, float]]:
    return {
        what: {name: round(statistics.median(tick[name] for tick in ticks), 4) for name in ticks[0]}
        for what, ticks in rounds.items()
    }


@click.command()
@click.option("--policies", default=1000, show_default=True)
@click.option("--own", default=0, show_default=True, help="Number of policies that bring a query of their own.")
@click.option("--budgets", default=0, show_default=True, help="Into how many RLScalingBudgets they are split.")
@click.option("--rounds", default=5, show_default=True, help="Medians are taken over them.")
@out_option
def main(policies: int, own: int, budgets: int, rounds: int, out: Path | None) -> None:
    # Prometheus of this benchmark has no histograms of the services.
    logging.getLogger("rlscaler.tick").setLevel(logging.ERROR)
    load = os.getloadavg()[0]
    server = subprocess.Popen([sys.executable, "-c", ANSWERS], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        figures = asyncio.run(run(policies, own, budgets, rounds, url))
    finally:
        server.terminate()
        server.wait()
    result = {
        "benchmark": "tick",
        "policies": policies,
        "own": own,
        "budgets": budgets,
        **figures,
        "load_before": load,
        "machine": machine(),
    }
    click.echo(json.dumps(result, indent=2))
    write(out, result)


if __name__ == "__main__":
    main()
