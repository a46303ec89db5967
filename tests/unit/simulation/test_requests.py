"""The request level against the emulated service's own router, request by request."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from rlscaler_loadgen.service.replica import FLAVOURS
from rlscaler_loadgen.service.router import Pod, Router, UnavailableError
from rlscaler_rl.simulation import ledger as ledgers
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.cluster import ROUTERS
from rlscaler_rl.simulation.pods import uniform
from rlscaler_rl.simulation.scenario import ScenarioError, Scenarios, from_rate
from rlscaler_rl.simulation.tables import CVS, lognormal_parameters
from tests.harness.clock import JumpingLoop

SLO, TIMEOUT = 1.0, 5.0
SAME = {"least_loaded": "least-loaded", "round_robin": "round-robin"}
"""The routers without chance of their own: the service must do the same, to the last request."""


def requests_of(scenarios: Scenarios) -> tuple[np.ndarray, np.ndarray]:
    """Moments of arrival and service times over the mean, as the request level draws them."""
    key, moments, factors, index = scenarios.key[0], [], [], 0
    mu, sigma = lognormal_parameters(CVS[scenarios.cv[0]])
    for t, count in enumerate(scenarios.arrivals[0].astype(int)):
        draws = [uniform(key, 2, index + i) for i in range(count)] + [uniform(key, 2, -1 - t)]
        gaps = np.cumsum(-np.log1p(-np.array(draws)))
        moments += (t + gaps[:-1] / gaps[-1]).tolist()
        for i in range(index, index + count):
            normal = np.sqrt(-2 * np.log1p(-uniform(key, 3, i))) * np.cos(2 * np.pi * uniform(key, 6, i))
            factors.append(np.exp(mu + sigma * normal))
        index += count
    return np.array(moments), np.array(factors)


def service_outcomes(scenarios: Scenarios, routing: Any, changes: dict[int, tuple[int, int]]) -> list[float]:
    """Latency of every request at the emulated service, infinite when refused or given up.

    changes: second -> pods (GPU, CPU) that are ready from then on.
    """
    moments, factors = requests_of(scenarios)
    latencies: list[float] = [np.nan] * len(moments)

    async def play() -> None:
        loop = asyncio.get_running_loop()
        router = Router(dict(FLAVOURS), routing=routing, weights={"gpu": 500.0, "cpu": 500.0})
        router._times = iter(factors.tolist())

        def scale(pods: tuple[int, int]) -> None:
            for pool, count in zip(("gpu", "cpu"), pods, strict=True):
                names = [name for name, pod in router.pods.items() if pod.pool == pool]
                for index in range(len(names), count):
                    router.apply(Pod(f"{pool}-{index}", pool))
                leaving = [f"{pool}-{index}" for index in range(count, len(names))]
                for name in leaving:
                    router.apply(Pod(name, pool, terminating=True))
                for name in leaving:
                    router.remove(name)

        async def ask(index: int) -> None:
            try:
                async with asyncio.timeout_at(moments[index] + TIMEOUT):
                    await router.serve()
                latencies[index] = loop.time() - moments[index]
            except (UnavailableError, TimeoutError):
                latencies[index] = np.inf

        scale(tuple(scenarios.initial[0].tolist()))
        for second, pods in changes.items():
            loop.call_at(second, scale, pods)
        async with asyncio.TaskGroup() as clients:
            for index, moment in enumerate(moments):
                await asyncio.sleep(moment - loop.time())
                clients.create_task(ask(index))

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(play())
    return latencies


def scenario(rate: float, seconds: int, seed: int, **overrides: Any) -> Scenarios:
    """A Poisson load that ends 12 s before the episode does, so that nothing is left."""
    load = np.full((1, seconds), rate)
    load[:, -12:] = 0
    cold = {"cold_start_low": (0.5, 0.5), "cold_start_high": (0.5, 0.5)}
    return from_rate(load, [seed], **{**cold, **overrides})


def booked(batch: Batch) -> tuple[int, int, int]:
    row = batch.cluster.row[0]
    return int(row["in_time"]), int(row["late"]), int(row["dropped"])


def outcomes(latencies: list[float]) -> tuple[int, int, int]:
    values = np.array(latencies)
    return int((values <= SLO).sum()), int(((values > SLO) & (values <= TIMEOUT)).sum()), int(np.isinf(values).sum())


@pytest.mark.parametrize("router", SAME)
@pytest.mark.parametrize(("pods", "rate"), [((2, 3), 25.0), ((1, 4), 30.0), ((1, 1), 60.0), ((0, 3), 13.0)])
def test_every_request_ends_as_at_the_emulated_service(router, pods, rate):
    scenarios = scenario(rate, 90, 3, initial=pods, router=ROUTERS.index(router), min_replicas=(0, 0))
    batch = Batch(scenarios, level="request")
    batch.scale(np.array([pods]), np.array([[500, 500]]))
    batch.advance(90)
    assert booked(batch) == outcomes(service_outcomes(scenarios, SAME[router], {}))
    ledgers.check(ledgers.read(batch.cluster), scenarios)


@pytest.mark.parametrize("router", SAME)
def test_pods_that_come_and_go_do_what_they_do_at_the_emulated_service(router):
    """Waiting requests of a pod that leaves are routed again, begun ones end."""
    scenarios = scenario(45.0, 90, 5, initial=(3, 4), router=ROUTERS.index(router))
    changes = {20: (1, 4), 40: (1, 2), 45: (2, 2), 60: (2, 6)}
    batch = Batch(scenarios, level="request")
    batch.scale(np.array([[3, 4]]), np.array([[500, 500]]))
    for second in range(90):
        if second in changes:
            batch.scale(np.array([changes[second]]), np.array([[500, 500]]))
        batch.advance(1)
    # A pod asked for now is ready within the second at the end of which cold starts end here.
    ready = {second + (second in (45, 60)): pods for second, pods in changes.items()}
    assert booked(batch) == outcomes(service_outcomes(scenarios, SAME[router], ready))


@pytest.mark.parametrize("router", ROUTERS)
def test_latencies_in_the_histogram_are_all_requests_that_were_answered(router):
    scenarios = scenario(40.0, 60, 2, initial=(2, 3), router=ROUTERS.index(router))
    batch = Batch(scenarios, level="request")
    batch.scale(np.array([[2, 3]]), np.array([[600, 400]]))
    batch.advance(60)
    in_time, late, _ = booked(batch)
    counts = batch.cluster.histogram[0]
    assert counts[-1] == in_time + late
    assert counts[10] == in_time, "the bucket of 1 s is the SLO's"
    assert (np.diff(counts) >= 0).all()


def test_routers_are_ranked_as_queueing_theory_ranks_them():
    rate = np.full((1, 600), 0.8 * 8 * 4)
    options = {"present": (False, True), "initial": (0, 8), "min_replicas": (0, 8), "max_replicas": (0, 8)}
    late = {}
    for index, router in enumerate(ROUTERS):
        scenarios = from_rate(rate, [0], router=index, **options)
        batch = Batch(scenarios, level="request")
        batch.advance(600)
        late[router] = ledgers.read(batch.cluster).late_percent()[0]
    assert late["random"] > 2 * late["round_robin"] > 2 * late["least_loaded"] >= 2 * late["central"]
    assert late["random"] > 2 * late["power_of_two"] >= 2 * late["least_loaded"]


def test_contenders_meet_the_same_requests_whatever_they_do():
    """Total service time given to a pool that takes everything does not depend on its replicas."""
    work = []
    for pods in (4, 8):
        scenarios = scenario(30.0, 90, 1, initial=(pods, 1))
        batch = Batch(scenarios, level="request")
        batch.scale(np.array([[pods, 1]]), np.array([[1000, 0]]))
        batch.advance(90)
        work.append(batch.cluster.pool["busy_seconds"][0, 0])
    assert work[0] == pytest.approx(work[1], rel=1e-9)


@pytest.mark.parametrize(
    ("overrides", "named"),
    [({"arrivals": np.full((1, 60), 0.5, np.float32)}, "arrivals"), ({"queue_limit": 500}, "queue")],
)
def test_what_the_request_level_cannot_play_is_refused(overrides, named):
    with pytest.raises(ScenarioError, match=named):
        Batch(from_rate(np.full((1, 60), 10.0), [0], **overrides), level="request")
