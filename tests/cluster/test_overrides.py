"""A query of a policy's own in place of each signal of a preset, read from a real Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.measure import Readings, measure
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.queries import REPLACES, Window, batch, own_queries
from rlscaler_operator.sensing.results import Answers
from rlscaler_operator.sensing.subject import Subject
from tests.harness.scraping import Counters, about, prometheus

WINDOW = Window(8, 1.0)
EXPOSITION = Path(__file__).parents[1] / "data" / "presets" / "vllm.txt"
PODS = {"gpu": "chat-gpu-7d9c6b8f5d-x7kbp", "cpu": "chat-cpu-7d9c6b8f5d-x7kbp"}
CHAT = Subject("vllm", "chat", ("chat-gpu", "chat-cpu"), preset="vllm")
OWN = {
    "arrivalRate": 17.0,
    "load": 31.0,
    "cpuUtilization": 23.0,
    "memoryUtilization": 41.0,
    "gpuUtilization": 59.0,
    "p95Latency": 321.0,
}
"""What the policy's own query of each name gives; no preset measures any of it."""

MEASURED = {"load": "arrival_rate"}
"""Where a replaced signal shows: a load is what arrives, in its unit."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Two pods of vLLM, what their nodes say of them, and a gauge for each query of the policy's own."""
    made: list[Counters] = []
    targets: list[tuple[str, dict[str, str]]] = []
    for pod in PODS.values():
        made.append(Counters())
        made[-1].recorded(EXPOSITION)
        targets.append((made[-1].address, {"namespace": "vllm", "pod": pod, "service": "http", "container": "app"}))
    cluster = Counters()
    for pod in PODS.values():
        of = {"namespace": "vllm", "pod": pod, "container": "app"}
        cluster.counter("container_cpu_usage_seconds_total", 0.5, **of)
        cluster.gauge("container_memory_working_set_bytes", 5e8, **of)
        for resource, value in (("cpu", 1.0), ("memory", 1e9)):
            cluster.gauge("kube_pod_container_resource_requests", value, **of, resource=resource)
    for name, value in OWN.items():
        cluster.gauge("mine", value, signal=name)
    made.append(cluster)
    targets.append((cluster.address, {}))
    with prometheus(targets, honor_labels=True) as address:
        yield address
    for one in made:
        one.close()


async def readings(url: str, subject: Subject) -> Readings:
    """What is measured once all that is asked is known over full windows; as it is after a while."""
    client = Prometheus(Access(url), timeout_seconds=10)
    queries, own = batch([subject], WINDOW, WINDOW), own_queries(subject)

    async def ask() -> Readings:
        answers: Answers = await client.ask(queries)
        if own:
            answers |= (await client.ask_own(subject.namespace, own, ())).answers
        return measure(answers, subject, (1, 1))

    found = await ask()
    try:
        async with asyncio.timeout(30):
            while not all(one.known and one.may_lower for one in found.values()):
                await asyncio.sleep(0.5)
                found = await ask()
    except TimeoutError:
        pass
    await client.close()
    return found


def test_every_name_is_here() -> None:
    assert OWN.keys() == REPLACES.keys()


@pytest.mark.parametrize("name", OWN)
async def test_one_signal_is_replaced_and_the_others_are_the_presets(url: str, name: str) -> None:
    plain = replace(CHAT, unit="tokens") if name == "load" else CHAT
    subject = replace(plain, queries=((name, f'sum(mine{{signal="{name}"}})'),))
    signal = MEASURED.get(name, REPLACES[name])
    before, found = await readings(url, plain), await readings(url, subject)
    assert found[signal].value == OWN[name]
    assert before[signal].value != OWN[name]
    for other in before.keys() - {signal}:
        if before[other].known:
            assert found[other].value == about(before[other].value), other
        else:
            assert found[other].reason == before[other].reason, other


@pytest.mark.parametrize("name", OWN)
async def test_an_own_query_without_a_sample_makes_its_signal_unknown(url: str, name: str) -> None:
    plain = replace(CHAT, unit="tokens") if name == "load" else CHAT
    subject = replace(plain, queries=((name, 'mine{signal="none"}'),))
    client = Prometheus(Access(url), timeout_seconds=10)
    answers = await client.ask(batch([subject], WINDOW, WINDOW))
    answers |= (await client.ask_own(subject.namespace, own_queries(subject), ())).answers
    await client.close()
    reading = measure(answers, subject, (1, 1))[MEASURED.get(name, REPLACES[name])]
    assert (reading.known, reading.reason) == (False, "SeriesAbsent"), "the preset's own series do not stand in for it"


async def test_all_signals_are_replaced_at_once(url: str) -> None:
    names = [name for name in OWN if name != "load"]
    subject = replace(CHAT, queries=tuple((name, f'sum(mine{{signal="{name}"}})') for name in names))
    found = await readings(url, subject)
    assert {REPLACES[name]: found[REPLACES[name]].value for name in names} == {
        REPLACES[name]: OWN[name] for name in names
    }
