"""The series that Prometheus and metrics-server get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rlscaler_loadgen.service.app import Service
from rlscaler_loadgen.service.metrics import ServiceMetrics
from rlscaler_loadgen.service.replica import CPU, GPU
from rlscaler_loadgen.service.router import Pod, Router

InFakeTime = Callable[[Callable[[], Any]], Any]


def scrape(registry: CollectorRegistry) -> dict[str, dict[tuple[str, ...], float]]:
    """Series by name and by label values, in the alphabetical order of the labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            key = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def test_the_services_series_exist_at_zero_from_the_start() -> None:
    registry = CollectorRegistry()
    ServiceMetrics(registry, "ns", "chat", slo_seconds=0.8)
    found = scrape(registry)
    for pool in ("cpu", "gpu"):
        assert found["inference_requests_received_total"]["ns", pool, "chat"] == 0
        assert found["inference_requests_in_flight"]["ns", pool, "chat"] == 0
        assert found["inference_request_duration_seconds_count"]["ns", pool, "chat"] == 0
        for code in ("200", "499", "503"):
            assert found["inference_requests_total"][code, "ns", pool, "chat"] == 0
    assert any("0.8" in key for key in found["inference_request_duration_seconds_bucket"])


def test_a_pod_is_described_by_the_names_of_a_real_cluster(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        router = Router(variation=1e-9)
        service = Service(router, "ns", "chat")
        router.apply(Pod("g-1", "gpu", cpu_request=2.0, memory_request=8e9, gpus=1, container="llm"))
        router.apply(Pod("c-1", "cpu", cpu_request=4.0, memory_request=4e9, container="llm"))
        router.apply(Pod("c-2", "cpu", ready=False, started=False, cpu_request=4.0))
        service.usage.sample(asyncio.get_running_loop().time())
        router.set_weights({"gpu": 0, "cpu": 1})
        await router.serve()
        router.set_weights({"gpu": 1, "cpu": 0})
        for _ in range(3):
            await router.serve()
        await asyncio.sleep(1.0 - asyncio.get_running_loop().time())
        service.usage.sample(1.0)
        found = scrape(service.registry)
        cpu = found["container_cpu_usage_seconds_total"]
        assert cpu["llm", "ns", "c-1"] == pytest.approx(CPU.mean_seconds * 4)
        assert cpu["llm", "ns", "g-1"] == pytest.approx(3 * GPU.mean_seconds * 2 * GPU.cpu_share)
        assert ("llm", "ns", "c-2") not in cpu
        assert found["container_memory_working_set_bytes"]["llm", "ns", "c-1"] == pytest.approx(1.6e9)
        assert found["DCGM_FI_DEV_GPU_UTIL"] == {("0", "ns", "g-1"): pytest.approx(15)}
        requests = found["kube_pod_container_resource_requests"]
        assert requests["llm", "ns", "g-1", "nvidia_com_gpu", "integer"] == 1
        assert requests["llm", "ns", "c-1", "cpu", "core"] == 4
        assert requests["server", "ns", "c-2", "cpu", "core"] == 4
        assert not any(key[2:4] == ("c-2", "memory") for key in requests)

        router.remove("g-1")
        found = scrape(service.registry)
        assert not any("g-1" in key for series in found.values() for key in series)
        assert "DCGM_FI_DEV_GPU_UTIL" not in found

    in_fake_time(main)


def test_cpu_time_rises_while_a_request_is_worked_on(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        router = Router(variation=1e-9)
        service = Service(router, "ns", "chat")
        router.apply(Pod("c-1", "cpu", cpu_request=1.0))
        client = asyncio.create_task(router.serve())
        seen = []
        for _ in range(6):
            await asyncio.sleep(0.05)
            seen.append(scrape(service.registry)["container_cpu_usage_seconds_total"]["server", "ns", "c-1"])
        assert seen == pytest.approx([0.05, 0.1, 0.15, 0.2, 0.25, 0.25])
        await client

    in_fake_time(main)


def test_usage_is_averaged_over_the_window_and_unknown_at_first(in_fake_time: InFakeTime) -> None:
    async def main() -> None:
        router = Router(variation=1e-9)
        service = Service(router, "ns", "chat")
        router.apply(Pod("c-1", "cpu"))
        assert service.usage.busy("c-1", 5) is None
        client = asyncio.create_task(router.serve())
        for second in range(8):
            service.usage.sample(float(second))
            await asyncio.sleep(1.0)
        await client
        assert service.usage.busy("c-1", 5) == 0
        assert service.usage.busy("c-1", 15) == pytest.approx(0.25 / 7)
        assert service.usage.busy("gone", 5) is None

    in_fake_time(main)
