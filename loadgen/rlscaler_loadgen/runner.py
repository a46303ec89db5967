"""Runs Locust: headless as a process of its own whose results are brought home, or as master and workers."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tenacity

from rlscaler_loadgen.errors import LoadError
from rlscaler_loadgen.traces import read_trace

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
CHECK_SECONDS = 5.0


@dataclass(frozen=True)
class LoadRun:
    """One run against `host`; files go to `out`. options: fields of `LoadSettings`."""

    host: str
    out: Path
    requests: bool
    options: dict[str, Any]

    def run(self) -> dict[str, Any]:
        """Run to the end (or to the first SIGINT or SIGTERM) and return the content of OUT/load.json.

        Raises LoadError where the service does not answer or Locust fails, TraceError for a trace that is refused,
        ModuleNotFoundError where Locust is not installed.
        """
        _require_locust()
        if self.options.get("trace"):
            read_trace(self.options["trace"])
        check_service(self.host)
        self.out.mkdir(parents=True, exist_ok=True)
        summary = self.out / "load.json"
        summary.unlink(missing_ok=True)
        log = self.out / "locust.log"
        with log.open("w", encoding="utf-8") as file:
            process = subprocess.Popen(
                self.command(), env=self.environment(), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
            with _forwarding(process):
                code = process.wait()
        if not summary.exists():
            tail = "\n".join(log.read_text(encoding="utf-8").splitlines()[-5:])
            raise LoadError(f"Locust ended with code {code} and without a result; see {log}:\n{tail}")
        return dict(json.loads(summary.read_text(encoding="utf-8")))

    def command(self) -> list[str]:
        """The Locust command line."""
        stop_timeout = str(math.ceil(self.options.get("timeout", 5.0)) + 1)
        return [
            *(sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--host", self.host.rstrip("/")),
            *("--only-summary", "--stop-timeout", stop_timeout, "--exit-code-on-error", "0"),
        ]

    def environment(self) -> dict[str, str]:
        """The parent's environment with this run's settings instead of any RLSCALER_ ones in it."""
        values: dict[str, Any] = {
            **self.options,
            "timeline": self.out / "load.csv",
            "summary": self.out / "load.json",
            "requests": self.out / "requests.csv" if self.requests else None,
            "parent": os.getpid(),
        }
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("RLSCALER_")}
        return inherited | {f"RLSCALER_{key.upper()}": str(value) for key, value in values.items() if value is not None}


@contextmanager
def _forwarding(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """SIGINT and SIGTERM end Locust in order; a second one kills it."""
    received = []

    def forward(number: int, frame: object) -> None:
        received.append(number)
        process.send_signal(signal.SIGKILL if len(received) > 1 else signal.SIGTERM)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if process.poll() is None:
            process.kill()
            process.wait()


def lead(host: str, workers: int, out: Path, web: tuple[str, int], port: int, wait_seconds: float) -> None:
    """Become Locust's master: wait for the service, then run this process' settings with so many workers.

    web: address of the web interface. Does not return. Raises LoadError where the service does not answer,
    ModuleNotFoundError where Locust is not installed.
    """
    _require_locust()
    out.mkdir(parents=True, exist_ok=True)
    waiting = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(LoadError),
        stop=tenacity.stop_after_delay(wait_seconds),
        wait=tenacity.wait_fixed(1.0),
        reraise=True,
    )
    waiting(check_service, host)
    files = {"timeline": "load.csv", "summary": "load.json", "requests": "requests.csv", "started": "started.json"}
    settings = {f"RLSCALER_{key.upper()}": str(out / name) for key, name in files.items()}
    _become(
        *("--master", "--expect-workers", str(workers), "--master-bind-port", str(port), "--autostart"),
        *("--host", host.rstrip("/"), "--web-host", web[0], "--web-port", str(web[1]), "--only-summary"),
        environment={**settings, "RLSCALER_WORKERS": str(workers)},
    )


def follow(master: str, port: int, workers: int) -> None:
    """Become a Locust worker. Does not return. Raises ModuleNotFoundError where Locust is not installed."""
    _require_locust()
    _become(
        *("--worker", "--master-host", master, "--master-port", str(port)),
        environment={"RLSCALER_WORKERS": str(workers)},
    )


def _require_locust() -> None:
    """Raise ModuleNotFoundError here, and not in Locust's own process. To import it would patch this one."""
    if importlib.util.find_spec("locust") is None:
        raise ModuleNotFoundError("No module named 'locust'", name="locust")


def _become(*arguments: str, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *arguments]
    os.execve(sys.executable, command, {**os.environ, **environment})


def check_service(host: str) -> None:
    """Raises LoadError where the service does not answer for liveness."""
    url = f"{host.rstrip('/')}/v2/health/live"
    try:
        urllib.request.urlopen(url, timeout=CHECK_SECONDS).close()
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise LoadError(f"{url} does not answer ({error}); start the service or correct --host") from error


def summary_lines(result: dict[str, Any]) -> list[str]:
    """The result in a few lines for people."""
    share = 100 * result["slo_violation_ratio"]
    lines = [
        f"{result['requests']} requests in {result['duration_s']:.0f} s"
        f"{' (interrupted)' if result['interrupted'] else ''}: {result['ok']} within {result['slo_ms']:.0f} ms, "
        f"{result['late']} late, {result['failures']} failed ({share:.2f} % outside the SLO)",
        f"goodput {result['goodput_rps']:.2f}/s, p50 {_ms(result['p50_ms'])}, p95 {_ms(result['p95_ms'])}, "
        f"p99 {_ms(result['p99_ms'])} (a failure counts as the client's timeout)",
    ]
    if result["generator_late"]:
        lines.append(
            f"warning: the load generator was late itself (p99 {_ms(result['dispatch_lag_p99_ms'])}); "
            "give it more CPU or less load"
        )
    return lines


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
