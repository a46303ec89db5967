"""What containers use, scraped by a real Prometheus and read by the operator's queries for the size of pods."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.queries import Window, batch, size_name
from rlscaler_operator.sensing.results import Reading, pick
from rlscaler_operator.sensing.subject import Subject
from tests.harness.scraping import Counters, about, prometheus

WINDOW = Window(8, 1.0)
MIB = 2.0**20
CORES = {"chat-gpu-7d9c6b8f5d-x7kbp": 3.0, "chat-gpu-7d9c6b8f5d-b2c4d": 1.0, "other-7d9c6b8f5d-x7kbp": 9.0}
BYTES = {"chat-gpu-7d9c6b8f5d-x7kbp": 300 * MIB, "chat-gpu-7d9c6b8f5d-b2c4d": 700 * MIB, "other-7d9c6b8f5d-x7kbp": 1e12}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Two pods with a server and a proxy, and one of another Deployment, as two kubelet jobs give them."""
    nodes = Counters()
    for pod, cores in CORES.items():
        for container, share in (("server", 1.0), ("proxy", 0.1), ("", 1.1), ("POD", 0.0)):
            of = {"namespace": "ns", "pod": pod, "container": container}
            # Some runtimes tell the processors apart; both parts are of the one container.
            for number in ("0", "1"):
                nodes.counter("container_cpu_usage_seconds_total", cores * share / 2, **of, cpu=number)
            nodes.gauge("container_memory_working_set_bytes", BYTES[pod] * share, **of)
    targets = [(nodes.address, {"job": job}) for job in ("kubelet", "kubelet-again")]
    with prometheus(targets, honor_labels=True) as address:
        yield address
    nodes.close()


async def read(url: str, container: str) -> tuple[Reading, Reading]:
    """CPU and memory once both are known over full windows, or as they are after a while."""
    subject = Subject("ns", "chat", ("chat-gpu", None), sized=(("chat-gpu", container),))
    queries = batch([subject], WINDOW, WINDOW, Labels())
    client = Prometheus(Access(url), timeout_seconds=10)

    async def look() -> tuple[Reading, Reading]:
        answers = await client.ask(queries)
        cpu, memory = (pick(answers[size_name(one, container)], ("ns", "chat-gpu")) for one in ("cpu", "memory"))
        return cpu, memory

    found = await look()
    try:
        async with asyncio.timeout(60):
            while not all(reading.known and reading.may_lower for reading in found):
                await asyncio.sleep(0.5)
                found = await look()
    except TimeoutError:
        pass
    await client.close()
    return found


async def test_of_the_named_container_the_pod_that_uses_most_counts(url: str) -> None:
    cpu, memory = await read(url, "server")
    assert cpu.value == about(3.0)
    assert memory.value == 700 * MIB
    assert cpu.pods == memory.pods == 2
    assert max(cpu.age_seconds, memory.age_seconds) < 30


async def test_without_a_name_all_that_runs_in_a_pod_counts_once(url: str) -> None:
    cpu, memory = await read(url, "")
    assert cpu.value == about(3.3)
    assert memory.value == about(770 * MIB)


async def test_a_container_that_is_not_there_is_not_known(url: str) -> None:
    subject = Subject("ns", "chat", ("chat-gpu", None), sized=(("chat-gpu", "gone"),))
    client = Prometheus(Access(url), timeout_seconds=10)
    answers = await client.ask(batch([subject], WINDOW, WINDOW, Labels()))
    await client.close()
    assert not pick(answers[size_name("cpu", "gone")], ("ns", "chat-gpu")).known
