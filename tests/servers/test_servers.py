"""Presets against the servers themselves, under load."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time

import pytest

from rlscaler_dev.cluster.network import free_ports
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.measure import Readings, measure
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.queries import Window, batch, busy_pods
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import histogram_of, histograms, promql
from tests.harness.scraping import prometheus
from tests.servers.running import PYTHON, load, server

pytestmark = pytest.mark.skipif(not PYTHON, reason="RLSCALER_SERVERS_PYTHON names no Python with the servers")

WINDOW = Window(40, 1.0)
POD = "chat-gpu-7d9c6b8f5d-x7kbp"
RATE = 6.0
LOAD_SECONDS = 75


async def look(url: str, subject: Subject) -> Readings:
    client = Prometheus(Access(url), timeout_seconds=10)
    found = measure(await client.ask(batch([subject], WINDOW, WINDOW)), subject, (1, 0))
    await client.close()
    return found


async def test_ray_serve(capsys: pytest.CaptureFixture[str]) -> None:
    port, metrics = free_ports(2)
    labels = {"namespace": "shop", "pod": POD, "service": "ray", "container": "ray"}
    subject = Subject("shop", "default", ("chat-gpu", None), preset="rayserve")
    with (
        tempfile.TemporaryDirectory(prefix="ray-") as folder,
        server("ray_serve.py", str(port), str(metrics), folder),
        prometheus([(f"127.0.0.1:{metrics}", labels)]) as url,
        load(f"http://127.0.0.1:{port}/", None, RATE) as sent,
    ):
        await asyncio.sleep(LOAD_SECONDS)
        found, now = await look(url, subject), time.time()
        client = Prometheus(Access(url), timeout_seconds=10)
        counted = histogram_of(histograms(await client.instant(promql([subject], WINDOW.seconds))), subject)
        await client.close()
    rate = sum(now - WINDOW.seconds < at <= now for at in sent) / WINDOW.seconds
    with capsys.disabled():
        measured = {name: round(one.value, 3) for name, one in found.items() if one.known}
        print(f"\nRay Serve: {rate:.2f} requests/s sent; measured {measured}; window {counted}")
    assert found["arrival_rate"].value == pytest.approx(rate, rel=0.2)
    assert found["p95_latency"].value > 200
    assert 0 < found["gpu_utilization"].value <= 100
    assert counted is not None
    assert counted.received == pytest.approx(rate * WINDOW.seconds, rel=0.25)


async def test_llama_cpp(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    labels = {"namespace": "shop", "pod": POD, "service": "llama", "container": "llama"}
    subject = Subject("shop", "chat", ("chat-gpu", None), preset="llamacpp")
    body = json.dumps({"prompt": "w1 w2 w3 w4 " * 8, "n_predict": 256, "ignore_eos": True}).encode()
    with (
        tempfile.TemporaryDirectory(prefix="llama-") as folder,
        server("llama_cpp.py", str(port), folder),
        prometheus([(f"127.0.0.1:{port}", labels)]) as url,
        load(f"http://127.0.0.1:{port}/completion", body, 12.0),
    ):
        await asyncio.sleep(20)
        found = await look(url, subject)
        client = Prometheus(Access(url), timeout_seconds=10)
        busy = await client.instant(busy_pods("chat-gpu", preset="llamacpp"))
        await client.close()
    flight = [float(one["value"][1]) for one in busy if one["metric"]["_"] == "in_flight"]
    with capsys.disabled():
        print(f"\nllama.cpp: in flight and waiting {flight}")
    assert found["arrival_rate"].reason == "NotExported"
    assert flight
    assert flight[0] > 0
