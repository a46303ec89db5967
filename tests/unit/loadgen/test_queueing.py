"""Replicas and the router, on a clock that jumps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rlscaler_loadgen.service.replica import (
    CPU,
    GPU,
    Flavour,
    QueueFullError,
    Replica,
    ReplicaGoneError,
    ServiceTimes,
    Slowdown,
)  # fmt: skip
from rlscaler_loadgen.service.router import ROUTINGS, Answer, Pod, Router, UnavailableError

InFakeTime = Callable[[Callable[[], Any]], Any]
ONE_SECOND = Flavour("cpu", mean_seconds=1.0, queue=2)


def router(pods: dict[str, str], **options: Any) -> Router:
    """A router with ready pods: name -> pool."""
    made = Router(**options)
    for name, pool in pods.items():
        made.apply(Pod(name, pool))
    return made


def test_requests_are_served_first_in_first_out(in_fake_time: InFakeTime) -> None:
    async def main() -> list[tuple[float, float]]:
        replica = Replica("a", ONE_SECOND)
        return await asyncio.gather(*(replica.submit(factor).done for factor in (1.0, 0.5, 2.0)))

    assert in_fake_time(main) == [(0, 1), (1, 0.5), (1.5, 2)]


def test_a_full_queue_refuses(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        replica = Replica("a", ONE_SECOND)
        for _ in range(3):
            replica.submit(1.0)
        with pytest.raises(QueueFullError):
            replica.submit(1.0)

    in_fake_time(main)


def test_an_abandoned_request_leaves_the_queue_but_a_begun_one_is_worked_on(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        replica = Replica("a", ONE_SECOND)
        begun, waiting, last = (replica.submit(1.0) for _ in range(3))
        replica.abandon(begun)
        replica.abandon(waiting)
        assert replica.load == 2
        assert await last.done == (1, 1)
        assert replica.busy_seconds() == 2

    in_fake_time(main)


def test_busy_time_is_continuous(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        replica = Replica("a", ONE_SECOND)
        replica.submit(1.0)
        replica.submit(1.0)
        seen = []
        for _ in range(12):
            await asyncio.sleep(0.25)
            seen.append(replica.busy_seconds())
        assert seen == pytest.approx([*np.arange(0.25, 2.01, 0.25), 2, 2, 2, 2])

    in_fake_time(main)


def test_eviction_returns_what_waits_and_ends_what_was_begun(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        replica = Replica("a", ONE_SECOND)
        begun, waiting = replica.submit(1.0), replica.submit(1.0)
        replica.evict()
        assert await begun.done == (0, 1)
        with pytest.raises(ReplicaGoneError):
            await waiting.done

    in_fake_time(main)


def test_service_times_are_seeded_lognormal_factors_of_mean_one() -> None:
    first, second = ServiceTimes(7), ServiceTimes(7)
    draws = np.array([next(first) for _ in range(20_000)])
    assert draws[:100].tolist() == [next(second) for _ in range(100)]
    assert draws.mean() == pytest.approx(1, abs=0.02)
    assert draws.std() == pytest.approx(0.5, abs=0.02)


def test_a_queue_at_seventy_percent_waits_as_theory_says(in_fake_time: InFakeTime) -> None:
    """M/G/1: the mean wait is rho * s * (1 + cv^2) / 2 / (1 - rho) (Pollaczek-Khinchine)."""
    rho, flavour = 0.7, Flavour("gpu", mean_seconds=0.05, queue=10_000)

    async def main() -> float:
        one, rng = router({"a": "gpu"}, flavours={"gpu": flavour, "cpu": CPU}, seed=3), np.random.default_rng(5)
        waits = []

        async def client() -> None:
            waits.append((await one.serve()).waited_seconds)

        async with asyncio.TaskGroup() as clients:
            for pause in rng.exponential(flavour.mean_seconds / rho, 20_000):
                await asyncio.sleep(pause)
                clients.create_task(client())
        return float(np.mean(waits))

    expected = rho * flavour.mean_seconds * (1 + 0.5**2) / 2 / (1 - rho)
    assert in_fake_time(main) == pytest.approx(expected, rel=0.06)


async def pools_of(made: Router, count: int) -> Counter[str]:
    """Who answers `count` requests that come one after the other."""
    return Counter([(await made.serve()).pool for _ in range(count)])


def test_weights_share_the_requests_between_the_pools(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        made = router({"g": "gpu", "c": "cpu"})
        made.set_weights({"gpu": 800, "cpu": 200})
        assert await pools_of(made, 500) == {"gpu": 400, "cpu": 100}
        made.set_weights({"gpu": 0, "cpu": 200})
        assert await pools_of(made, 10) == {"cpu": 10}

    in_fake_time(main)


def test_without_weights_the_ready_capacity_shares(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        made = router({"g": "gpu", "c1": "cpu", "c2": "cpu"})
        assert made.share() == {"gpu": 20, "cpu": 8}
        assert await pools_of(made, 280) == {"gpu": 200, "cpu": 80}

    in_fake_time(main)


def test_a_new_version_slows_every_request_from_its_second_on(in_fake_time: InFakeTime) -> None:
    async def main() -> list[float]:
        made = router({"g": "gpu"}, variation=1e-9, slowdown=Slowdown(2.0, after=10.0))
        served = []
        for _ in range(3):
            served.append((await made.serve()).served_seconds)
            await asyncio.sleep(6)
        return served

    assert in_fake_time(main) == pytest.approx([0.05, 0.05, 0.1], rel=1e-6)


@pytest.mark.parametrize("weights", [{"gpu": 1.0, "cpu": 1.0}, None, {"gpu": 0.0, "cpu": 0.0}])
def test_nobody_ready_is_unavailable_and_counted(in_fake_time: InFakeTime, weights: dict[str, float] | None) -> None:
    async def main() -> None:
        made, counted = Router(weights=weights), []
        with pytest.raises(UnavailableError):
            await made.serve(counted.append)
        assert counted == ["gpu"]

    in_fake_time(main)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_every_routing_uses_all_pods_and_least_loaded_waits_least(in_fake_time: InFakeTime, routing: Any) -> None:
    async def main(how: Any = routing) -> tuple[Counter[str], float]:
        made, rng = router({f"g{i}": "gpu" for i in range(8)}, routing=how, seed=2), np.random.default_rng(1)
        answers: list[Answer] = []

        async def client() -> None:
            answers.append(await made.serve())

        async with asyncio.TaskGroup() as clients:
            for pause in rng.exponential(GPU.mean_seconds / 8 / 0.8, 4000):
                await asyncio.sleep(pause)
                clients.create_task(client())
        return Counter(answer.pod for answer in answers), float(np.mean([a.waited_seconds for a in answers]))

    pods, waited = in_fake_time(main)
    assert len(pods) == 8
    assert min(pods.values()) > 350
    _, best = in_fake_time(lambda: main("least-loaded"))
    assert best <= waited


def test_a_deleted_pods_waiting_requests_go_elsewhere_and_its_series_end(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        made = router({"c1": "cpu", "c2": "cpu"})
        clients = [asyncio.create_task(made.serve()) for _ in range(6)]
        await asyncio.sleep(0)
        made.remove("c1")
        answers = await asyncio.gather(*clients)
        assert Counter(answer.pod for answer in answers) == {"c1": 1, "c2": 5}
        assert set(made.replicas) == {"c2"}

    in_fake_time(main)


def test_the_last_pod_gone_fails_what_waited(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        made = router({"c1": "cpu"})
        clients = [asyncio.create_task(made.serve()) for _ in range(3)]
        await asyncio.sleep(0)
        made.remove("c1")
        results = await asyncio.gather(*clients, return_exceptions=True)
        assert [type(result) for result in results] == [Answer, UnavailableError, UnavailableError]

    in_fake_time(main)


def test_a_client_that_goes_away_frees_its_place(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        made = router({"c1": "cpu"})
        clients = [asyncio.create_task(made.serve()) for _ in range(3)]
        await asyncio.sleep(0)
        clients[1].cancel()
        await asyncio.sleep(0)
        assert made.replicas["c1"].load == 2
        await asyncio.wait(clients)

    in_fake_time(main)
