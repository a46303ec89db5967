"""A master and two workers in processes of their own share one run against a real replica."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from rlscaler_loadgen.settings import LoadSettings

from .conftest import Start

LOAD = [sys.executable, "-c", "from rlscaler_loadgen.cli import load; load()"]
SETTINGS = {"pattern": "spike", "duration": 4, "peak": 40, "seed": 7, "slo_ms": 4000, "timeout": 1}
DEADLINE_SECONDS = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(url: str) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        answer = session.get(url, timeout=10)
    answer.raise_for_status()
    return answer


def patiently(url: str) -> requests.Response:
    failed = retry_if_exception_type(requests.RequestException)
    retrying = Retrying(stop=stop_after_delay(DEADLINE_SECONDS), wait=wait_fixed(0.2), retry=failed, reraise=True)
    return retrying(get, url)


@pytest.fixture
def results(start_service: Start, tmp_path: Path) -> Iterator[str]:
    """Where the master serves the results of one run."""
    served = start_service("pod", "--flavour", "gpu", "--mean-ms", "5", "--concurrency", "8")
    web, port = free_port(), free_port()
    environment = {**os.environ, **{f"RLSCALER_{name.upper()}": str(value) for name, value in SETTINGS.items()}}
    master = ["--host", served.url, "--out", str(tmp_path / "out"), "--web-host", "127.0.0.1", "--web-port", str(web)]
    commands = [["master", "--workers", "2", "--port", str(port), *master]]
    commands += [["worker", "--master", "127.0.0.1", "--port", str(port)]] * 2
    with contextlib.ExitStack() as stack:
        for number, command in enumerate(commands):
            log = stack.enter_context((tmp_path / f"{number}.log").open("wb"))
            process = subprocess.Popen([*LOAD, *command], env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield f"http://127.0.0.1:{web}/results"


def test_workers_send_every_request_of_the_schedule_once(results: str) -> None:
    summary: dict[str, Any] = patiently(f"{results}/load.json").json()
    rows = list(csv.DictReader(io.StringIO(get(f"{results}/requests.csv").text)))
    started = get(f"{results}/started.json").json()["started_at"]
    planned = LoadSettings(**SETTINGS).arrival_times().tolist()  # type: ignore[arg-type]
    sent = sorted(float(row["scheduled_at"]) - started for row in rows)
    assert sent == pytest.approx(planned, abs=2e-3)
    assert summary["requests"] == summary["ok"] + summary["late"] + summary["failures"] == len(planned)
    assert (summary["interrupted"], summary["unfinished"]) == (False, 0)
    assert {row["pool"] for row in rows if row["outcome"] == "ok"} == {"gpu"}
    seconds = list(csv.DictReader(io.StringIO(get(f"{results}/load.csv").text)))
    assert sum(int(row["sent"]) for row in seconds) == len(planned)
    with requests.Session() as session:  # and a part of a result can be fetched
        session.trust_env = False
        rest = session.get(f"{results}/load.json", headers={"Range": "bytes=10-"}, timeout=10)
    assert (rest.status_code, rest.content) == (206, get(f"{results}/load.json").content[10:])
