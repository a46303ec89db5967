"""Pod mode over real HTTP: the protocol, the metrics, and how a process ends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.harness.waiting import stalls

from .conftest import SERVICE, Start

TENSOR = {"name": "input", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}
REQUEST = {"id": "7", "inputs": [TENSOR]}


async def series(session: aiohttp.ClientSession, url: str) -> dict[tuple[str, ...], float]:
    """Samples of the metrics page by name, pool and code."""
    async with session.get(url) as response:
        text = await response.text()
    return {
        (sample.name, *(sample.labels[key] for key in ("pool", "code") if key in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("inference_requests")
    }


async def wait_for(session: aiohttp.ClientSession, url: str, key: tuple[str, ...], value: float) -> None:
    async with asyncio.timeout(10):
        while (await series(session, url)).get(key) != value:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def ask(session: aiohttp.ClientSession) -> int:
    async with session.post("/v2/models/chat/infer", json=REQUEST) as response:
        return response.status


async def test_it_speaks_the_open_inference_protocol(start_service: Start) -> None:
    served = start_service("pod", "--flavour", "gpu", "--mean-ms", "5", "--model", "chat")
    async with aiohttp.ClientSession(served.url) as session:
        for path, key, value in [
            ("/v2", "name", "chat"),
            ("/v2/health/live", "live", True),
            ("/v2/health/ready", "ready", True),
            ("/v2/models/chat", "name", "chat"),
            ("/v2/models/chat/ready", "ready", True),
        ]:
            async with session.get(path) as response:
                assert response.status == 200
                assert (await response.json())[key] == value
        async with session.post("/v2/models/chat/infer", json=REQUEST) as response:
            assert response.status == 200
            assert response.headers["X-Rlscaler-Pool"] == "gpu"
            body = await response.json()
        assert (body["model_name"], body["id"]) == ("chat", "7")
        assert body["outputs"] == [{**TENSOR, "name": "output"}]
        assert body["parameters"]["compute_ms"] > 0


async def test_a_bad_request_is_told_what_is_wrong(start_service: Start) -> None:
    served = start_service("pod", "--flavour", "gpu", "--model", "chat")
    async with aiohttp.ClientSession(served.url) as session:
        for model, body, status, complaint in [
            ("chat", b"{", 400, "not JSON"),
            ("chat", b"[]", 400, "inputs"),
            ("chat", b'{"inputs": []}', 400, "inputs"),
            ("chat", b'{"inputs": [1]}', 400, "inputs[0]"),
            ("chat", b'{"inputs": [{"name": "a", "shape": [1]}]}', 400, "datatype, data missing"),
            ("other", b"{}", 404, "served: chat"),
        ]:
            async with session.post(f"/v2/models/{model}/infer", data=body) as response:
                assert response.status == status
                assert complaint in (await response.json())["error"]
        found = await series(session, served.metrics_url)
    assert found["inference_requests_received_total", "gpu"] == 0


async def test_a_cold_start_is_unready_and_refuses_but_counts(start_service: Start) -> None:
    served = start_service("pod", "--flavour", "cpu", "--cold-start", "600", "600", "--mean-ms", "5")
    async with aiohttp.ClientSession(served.url) as session:
        async with session.get("/v2/health/ready") as response:
            assert response.status == 503
        async with session.post("/v2/models/chat/infer", json=REQUEST) as response:
            assert response.status == 503
        found = await series(session, served.metrics_url)
        assert found["inference_requests_received_total", "cpu"] == 1
        assert found["inference_requests_total", "cpu", "503"] == 1


async def test_a_cold_start_ends(start_service: Start) -> None:
    served = start_service("pod", "--flavour", "cpu", "--cold-start", "0.5", "0.5", "--mean-ms", "5")
    async with aiohttp.ClientSession(served.url) as session, asyncio.timeout(10):
        while True:
            async with session.get("/v2/health/ready") as response:
                if response.status == 200:
                    break
            await asyncio.sleep(0.05)


async def test_a_full_queue_rejects_and_every_request_is_accounted_for(start_service: Start) -> None:
    served = start_service("pod", "--flavour", "cpu", "--mean-ms", "60000", "--queue", "4", "--variation", "0.01")

    async with aiohttp.ClientSession(served.url) as session:
        asked = [asyncio.create_task(ask(session)) for _ in range(12)]
        await wait_for(session, served.metrics_url, ("inference_requests_total", "cpu", "503"), 7)
        await wait_for(session, served.metrics_url, ("inference_requests_in_flight", "cpu"), 5)
        refused = asyncio.as_completed(asked)
        assert [await next(refused) for _ in range(7)] == [503] * 7
        for request in asked:
            request.cancel()
        await wait_for(session, served.metrics_url, ("inference_requests_total", "cpu", "499"), 5)
        found = await series(session, served.metrics_url)
    assert found["inference_requests_received_total", "cpu"] == 12
    assert found["inference_requests_in_flight", "cpu"] == 0


async def test_what_waits_in_the_queue_is_answered(start_service: Start) -> None:
    served = start_service("pod", "--flavour", "cpu", "--mean-ms", "5", "--queue", "20")

    async with aiohttp.ClientSession(served.url) as session:
        assert await asyncio.gather(*(ask(session) for _ in range(12))) == [200] * 12
        found = await series(session, served.metrics_url)
    assert found["inference_requests_total", "cpu", "200"] == 12
    assert found["inference_requests_in_flight", "cpu"] == 0


async def test_a_client_that_goes_away_is_counted(start_service: Start) -> None:
    served = start_service("pod", "--flavour", "cpu", "--mean-ms", "60000", "--variation", "0.01")
    async with aiohttp.ClientSession() as session:
        asked = asyncio.create_task(session.post(f"{served.url}/v2/models/chat/infer", json=REQUEST))
        await wait_for(session, served.metrics_url, ("inference_requests_in_flight", "cpu"), 1)
        asked.cancel()
        await wait_for(session, served.metrics_url, ("inference_requests_total", "cpu", "499"), 1)
        await wait_for(session, served.metrics_url, ("inference_requests_in_flight", "cpu"), 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_after_the_requests_in_flight(start_service: Start, number: Any) -> None:
    served = start_service("pod", "--flavour", "cpu", "--mean-ms", "600", "--variation", "0.01")
    async with aiohttp.ClientSession() as session:
        asked = asyncio.create_task(session.post(f"{served.url}/v2/models/chat/infer", json=REQUEST))
        await wait_for(session, served.metrics_url, ("inference_requests_received_total", "cpu"), 1)
        begun = time.monotonic()
        with stalls() as lost:
            code = await asyncio.to_thread(served.stop, number)
            assert (await asked).status == 200
    assert code == 0
    assert time.monotonic() - begun - lost.seconds < 5


def test_a_taken_port_is_an_error_with_a_remedy(start_service: Start) -> None:
    served = start_service("pod", "--flavour", "gpu")
    port = served.url.rpartition(":")[2]
    second = subprocess.run(
        [*SERVICE, "pod", "--flavour", "gpu", "--port", port, "--metrics-port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}" in second.stderr
    assert "choose another port" in second.stderr
