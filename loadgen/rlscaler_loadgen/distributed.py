"""One run over several Locust workers: the master keeps the clock and the results, the workers send.

A worker sends every n-th request of the one schedule and reports the outcomes with Locust's own reports, every three
seconds; the master writes the files and serves them below `/results/` of its web interface. t = 0 is a Unix time that
the master announces: clocks that differ between machines show as dispatch lag.
"""

# Locust is not typed.
# mypy: disable-error-code="misc,untyped-decorator"

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

from locust.runners import WORKER_REPORT_INTERVAL, MasterRunner, WorkerRunner

from rlscaler_loadgen.results import Relay, replay

BEGIN = "rlscaler begin"
"""The master's message to each worker: when t = 0 is, and its part of the schedule."""
HEAD_START_SECONDS = 1.0
"""Time between the message and t = 0, so that no worker begins late."""
REPORT_SECONDS = WORKER_REPORT_INTERVAL + 1.0
"""Seconds after which the master knows an outcome on a worker."""
OUTCOMES = "rlscaler outcomes"
RESULTS = "/results/"


class DistributedRun(Protocol):
    """Interface of the locustfile's run for this module."""

    recorder: Any

    def begin(self, at: float, part: int = 0, parts: int = 1, relay: Relay | None = None) -> None: ...

    def end(self) -> None: ...


def connect(environment: Any, run: DistributedRun, results: Path | None) -> None:
    """Tie this process' run to the others'. results: folder that the master serves."""
    if isinstance(environment.runner, MasterRunner):
        _connect_master(environment, run)
        if environment.web_ui and results:
            _serve(environment.web_ui.app, results)
    elif isinstance(environment.runner, WorkerRunner):
        _connect_worker(environment, run)


def _connect_master(environment: Any, run: DistributedRun) -> None:
    runner = environment.runner

    def announce(**_: Any) -> None:
        if run.recorder is not None:
            return
        at = time.time() + HEAD_START_SECONDS
        run.begin(at)
        workers = [client.id for client in runner.clients.all]
        for part, worker in enumerate(workers):
            runner.send_message(BEGIN, {"at": at, "part": part, "parts": len(workers)}, worker)

    def take(data: dict[str, Any], **_: Any) -> None:
        if run.recorder is not None:
            replay(run.recorder, data.get(OUTCOMES, []))

    environment.events.spawning_complete.add_listener(announce)
    environment.events.worker_report.add_listener(take)
    environment.events.test_stop.add_listener(lambda **_: run.end())


def _connect_worker(environment: Any, run: DistributedRun) -> None:
    relay = Relay()

    def begin(msg: Any, **_: Any) -> None:
        run.begin(**msg.data, relay=relay)

    def report(data: dict[str, Any], **_: Any) -> None:
        data[OUTCOMES] = relay.take()

    environment.runner.register_message(BEGIN, begin)
    environment.events.report_to_master.add_listener(report)


def _serve(app: Any, folder: Path) -> None:
    from flask import send_from_directory

    def result(name: str) -> Any:
        return send_from_directory(folder, name, conditional=True, max_age=0)

    app.add_url_rule(f"{RESULTS}<name>", "rlscaler_results", result)
