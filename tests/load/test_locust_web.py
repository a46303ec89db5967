"""An environment that steers a Locust of the user's through its web interface."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from rlscaler_live.environment import LiveEnvironmentError
from rlscaler_live.environment.config import EnvironmentConfig
from rlscaler_live.environment.load import LocustWeb, offered_rate

LOCUSTFILE = """
from locust import FastHttpUser, constant, task

class User(FastHttpUser):
    wait_time = constant(1)

    @task
    def ask(self):
        self.client.post("/v2/models/chat/infer", json={"inputs": []})
"""
DEADLINE_SECONDS = 60.0


@pytest.fixture
def locust_url(start_service, tmp_path: Path) -> Iterator[str]:
    """A Locust with web interface and without a load shape, in front of one replica."""
    served = start_service("pod", "--flavour", "gpu")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    file = tmp_path / "locustfile.py"
    file.write_text(LOCUSTFILE)
    command = [sys.executable, "-m", "locust", "-f", str(file), "--host", served.url]
    command += ["--web-host", "127.0.0.1", "--web-port", str(port)]
    with (tmp_path / "locust.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def state(url: str) -> tuple[str, int]:
    with requests.Session() as session:
        session.trust_env = False
        found = session.get(f"{url}/stats/requests", timeout=10).json()
    return found["state"], found["user_count"]


async def until(url: str, wanted: tuple[str, int]) -> None:
    """Wait for a state with at least so many users."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    seen: object = None
    while time.monotonic() < deadline:
        try:
            seen = await asyncio.to_thread(state, url)
            if seen[0] == wanted[0] and seen[1] >= wanted[1]:
                return
        except requests.RequestException as error:
            seen = error
        await asyncio.sleep(0.2)
    pytest.fail(f"not {wanted} within {DEADLINE_SECONDS:.0f} s; last seen: {seen!r}")


async def test_the_users_follow_the_pattern_and_go_when_the_episode_ends(locust_url: str) -> None:
    await until(locust_url, ("ready", 0))
    load = LocustWeb(EnvironmentConfig(locust_url=locust_url))
    began = await load.start("ramp", 1, 40, None)
    assert abs(began - time.time()) < 5
    await until(locust_url, ("running", 20))
    await load.stop()
    await until(locust_url, ("stopped", 0))
    await load.stop()


async def test_an_address_without_a_locust_is_named() -> None:
    load = LocustWeb(EnvironmentConfig(locust_url="http://127.0.0.1:9"))
    with pytest.raises(LiveEnvironmentError, match=r"environment.locust_url: http://127.0.0.1:9/swarm"):
        await load.start("spike", 1, 30, None)


def test_the_pattern_is_the_load_generators_own() -> None:
    rate = offered_rate(EnvironmentConfig(low_rps=5, high_rps=50), "spike", 1, 100)
    assert (rate[0], rate[50], rate[99]) == (5.0, 50.0, 5.0)
    with pytest.raises(LiveEnvironmentError, match=r"environment.patterns"):
        offered_rate(EnvironmentConfig(), "square", 1, 100)
