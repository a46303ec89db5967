"""CPU time of the operator's own work for one batch of policies, and of it the longest for which nothing else ran.

    python benchmarks/tick.py [--policies 1000] [--rounds 5] [--out FILE]

The API server and Prometheus answer at once from memory. `first` is the tick that takes all policies over, `quiet` a
sensing tick in which nothing changes, `action` one action interval. Other processes on the machine do not count.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import statistics
import time
from pathlib import Path
from typing import Any

import click
from kubernetes.aio.client import Configuration

from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.loop.engine import Engine
from rlscaler_operator.run.context import GarbageCollection
from rlscaler_operator.sensing.results import Answers, Reading
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.schedule import Due, Schedule

BEAT_SECONDS = 0.002


class Memory(Kube):
    """Takes every write."""

    requests = 0

    async def request(self, method: str, path: str, body: Any = None, **_: Any) -> dict[str, Any]:
        self.requests += 1
        await asyncio.sleep(0)
        return {"metadata": {"resourceVersion": "1"}}


def policy(name: str) -> dict[str, Any]:
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
        },
    }


class Bench:
    def __init__(self, policies: int) -> None:
        settings = Settings()
        self.kube = Memory(Configuration(host="http://127.0.0.1:9"))
        shards = Shards(self.kube, settings)
        shards.leases[0]._deadline = math.inf
        self.engine = Engine(settings, self.kube, shards)
        names = [f"service-{i}" for i in range(policies)]
        for name in names:
            self.engine.registry.put(policy(name))
            deployment = {"metadata": {"namespace": "ns", "name": name}, "spec": {"replicas": 1}}
            self.engine.cache.put_deployment(deployment | {"status": {"readyReplicas": 1}})
        readings = {("ns", name): Reading(1.0, 1.0) for name in names}

        async def ask(_: Any, queries: list[Any]) -> Answers:
            return {query.name: readings for query in queries}

        self.engine.ticker.sources.ask = ask  # type: ignore[method-assign]
        self.policies = list(self.engine.registry)
        for one in self.policies:
            one.timing.schedule = Schedule.starting(30, 5, time.monotonic())
        self.longest = 0.0

    async def tick(self, due: Due) -> dict[str, float]:
        """CPU seconds, the most of them for which nothing else ran, and requests sent."""
        self.longest, self.kube.requests = 0.0, 0
        beat = asyncio.create_task(self._beat())
        began = time.process_time()
        engine = self.engine
        access = engine._access(self.policies[0])
        assert access is not None
        engine._launch(self.policies, engine.ticker.tick_batch(access, [(one, due) for one in self.policies]))
        while engine._tasks:
            await asyncio.wait(engine._tasks)
        seconds = time.process_time() - began
        beat.cancel()
        return {"cpu_seconds": seconds, "loop_held_seconds": self.longest, "requests": self.kube.requests}

    async def _beat(self) -> None:
        while True:
            before = time.process_time()
            await asyncio.sleep(BEAT_SECONDS)
            self.longest = max(self.longest, time.process_time() - before - BEAT_SECONDS)


async def run(policies: int, rounds: int) -> dict[str, Any]:
    bench, garbage = Bench(policies), GarbageCollection()
    garbage.begin()
    found: dict[str, list[dict[str, float]]] = {"first": [await bench.tick(Due.SENSE)], "quiet": [], "action": []}
    await bench.tick(Due.SENSE)
    for _ in range(rounds):
        found["action"].append(await bench.tick(Due.ACTION))
        await bench.tick(Due.SENSE)
        found["quiet"].append(await bench.tick(Due.SENSE))
    garbage.end()
    await bench.kube.close()
    return {
        what: {name: round(statistics.median(one[name] for one in ticks), 4) for name in ticks[0]}
        for what, ticks in found.items()
    }


@click.command()
@click.option("--policies", default=1000, show_default=True)
@click.option("--rounds", default=5, show_default=True, help="Medians are taken over them.")
@out_option
def main(policies: int, rounds: int, out: Path | None) -> None:
    load = os.getloadavg()[0]
    figures = asyncio.run(run(policies, rounds))
    result = {"benchmark": "tick", "policies": policies, **figures, "load_before": load, "machine": machine()}
    click.echo(json.dumps(result, indent=2))
    write(out, result)


if __name__ == "__main__":
    main()
