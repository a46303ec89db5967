"""Where an episode's requests come from: a Locust process, a Locust that runs already, or the service's own users."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

import requests

from rlscaler_live.environment.config import EnvironmentConfig
from rlscaler_live.environment.exceptions import LiveEnvironmentError
from rlscaler_loadgen.settings import offered_rate as rate_of

RLSCALER = (sys.executable, "-m", "rlscaler_live.cli")
"""The command line in a process of its own: Locust changes the standard library of the process that it runs in."""

START_SECONDS = 180.0
STOP_SECONDS = 15.0
POLL_SECONDS = 0.1
WEB_TIMEOUT_SECONDS = 10.0
SPAWN_RATE = 1000
"""Users a second that Locust adds or removes; the pattern alone says how fast the load moves."""


class Load(Protocol):
    """The source of one episode's requests at a time. Methods raise LiveEnvironmentError."""

    async def start(self, pattern: str, seed: int, seconds: int, folder: Path | None) -> float:
        """Begin, and return the Unix time of the pattern's first second."""

    async def stop(self) -> None:
        """End it, where it runs."""


class OwnTraffic:
    """The service has traffic of its own; nothing is started."""

    async def start(self, pattern: str, seed: int, seconds: int, folder: Path | None) -> float:
        return time.time()

    async def stop(self) -> None:
        return


class LoadProcess:
    """`rlscaler load run`: Locust, open loop, on the pattern's schedule."""

    def __init__(self, config: EnvironmentConfig) -> None:
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary: Path | None = None

    async def start(self, pattern: str, seed: int, seconds: int, folder: Path | None) -> float:
        if folder is None:
            folder = self._temporary = Path(tempfile.mkdtemp(prefix="rlscaler-load-"))
        folder.mkdir(parents=True, exist_ok=True)
        started = folder / "started.json"
        started.unlink(missing_ok=True)
        self._process = _spawn(self._command(pattern, seed, seconds, folder, started), folder / "load.log")
        deadline = time.monotonic() + START_SECONDS
        while not started.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                await self.stop()
                end = (folder / "load.log").read_text(errors="replace").strip()[-500:]
                raise LiveEnvironmentError(f"environment.service_url: the load did not start: {end}")
            await asyncio.sleep(POLL_SECONDS)
        return float(json.loads(started.read_text())["started_at"])

    def _command(self, pattern: str, seed: int, seconds: int, folder: Path, started: Path) -> list[str]:
        config = self._config
        return [
            *(*RLSCALER, "load", "run", "--host", str(config.service_url), "--pattern", pattern),
            *("--duration", str(seconds), "--seed", str(seed), "--out", str(folder), "--started", str(started)),
            *("--low", str(config.low_rps), "--peak", str(config.high_rps), "--slo-ms", str(config.slo_ms)),
            *("--timeout", str(config.client_timeout_ms / 1000), "--model", config.service),
            *(("--trace", str(config.trace)) if config.trace else ()),
        ]

    async def stop(self) -> None:
        """SIGTERM, which it passes on to Locust; SIGKILL where that does not end it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
            await asyncio.sleep(POLL_SECONDS)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None


class LocustWeb:
    """A running Locust, steered through its web address: as many users as the pattern says, second by second.

    A locustfile with a load shape of its own keeps to that; then it is only started and stopped.
    """

    def __init__(self, config: EnvironmentConfig) -> None:
        self._config = config
        self._url = str(config.locust_url).rstrip("/")
        self._following: asyncio.Task[None] | None = None
        self._running = False

    async def start(self, pattern: str, seed: int, seconds: int, folder: Path | None) -> float:
        rate = offered_rate(self._config, pattern, seed, seconds)
        # Locust has no swarm of 0 users: the lowest load is one user.
        users = [max(1, round(value)) for value in rate]
        answer = await asyncio.to_thread(self._swarm, users[0])
        self._running, began = True, time.monotonic()
        if "shape" not in str(answer.get("message", "")).lower():
            self._following = asyncio.create_task(self._follow(users, began), name="load")
        return time.time()

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError, LiveEnvironmentError):
                await self._following
            self._following = None
        if self._running:
            self._running = False
            await asyncio.to_thread(self._stop)

    async def _follow(self, users: list[int], began: float) -> None:
        now = users[0]
        while (second := int(time.monotonic() - began)) < len(users):
            if users[second] != now:
                now = users[second]
                await asyncio.to_thread(self._swarm, now)
            await asyncio.sleep(max(0.0, began + second + 1 - time.monotonic()))
        await asyncio.to_thread(self._stop)
        self._running = False

    def _swarm(self, users: int) -> dict[str, Any]:
        return self._ask("POST", "/swarm", {"user_count": users, "spawn_rate": SPAWN_RATE})

    def _stop(self) -> None:
        try:
            self._ask("POST", "/stop")
        except LiveEnvironmentError:  # older releases of Locust take a GET
            self._ask("GET", "/stop")

    def _ask(self, method: str, path: str, form: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            with requests.Session() as session:
                # A proxy of the environment must not come between two processes of one cluster.
                session.trust_env = False
                answer = session.request(method, self._url + path, data=form, timeout=WEB_TIMEOUT_SECONDS)
                answer.raise_for_status()
                content = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise LiveEnvironmentError(
                f"environment.locust_url: {self._url}{path}: {error}; start Locust with its web interface, or correct "
                "the address"
            ) from error
        if not isinstance(content, dict) or content.get("success") is False:
            raise LiveEnvironmentError(f"environment.locust_url: {self._url}{path} refused: {content}")
        return content


def _spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)


def make_load(config: EnvironmentConfig) -> Load:
    """The source of load that the configuration names."""
    if config.locust_url:
        return LocustWeb(config)
    return LoadProcess(config) if config.service_url else OwnTraffic()


def offered_rate(config: EnvironmentConfig, pattern: str, seed: int, seconds: int) -> list[float]:
    """Requests/s that a pattern asks for in each second. Raises LiveEnvironmentError."""
    try:
        rate = rate_of(pattern, seconds, seed, low=config.low_rps, peak=config.high_rps, trace=config.trace)
        return [float(value) for value in rate]
    except (ValueError, OSError) as error:
        raise LiveEnvironmentError(f"environment.patterns: {error}") from error
