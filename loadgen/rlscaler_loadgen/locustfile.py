"""Inference clients for Locust: `locust -f <this file> --headless --host URL`, set up by `LoadSettings`.

The shape ends the run (Locust ignores --run-time where there is a shape). One Locust user owns the clock and sends
every request at its scheduled time in a greenlet of its own, whatever becomes of the earlier ones; latency counts from
the scheduled time, so that a late generator shows up as latency and not as less load. With `workers` a master and that
many workers share one run (`rlscaler_loadgen.distributed`).
"""

# Locust is not typed.
# mypy: disable-error-code="misc,untyped-decorator"

from __future__ import annotations

import json
import logging
import os
import signal
import time
from typing import Any

import gevent
from gevent.event import Event
from gevent.pool import Group
from locust import FastHttpUser, LoadTestShape, constant, events, task

from rlscaler_loadgen.distributed import REPORT_SECONDS, connect
from rlscaler_loadgen.results import Recorder, Relay, write_json
from rlscaler_loadgen.settings import LoadSettings

logger = logging.getLogger(__name__)
settings = LoadSettings()
PATH = f"/v2/models/{settings.model}/infer"
BODY = json.dumps({"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [0.1, 0.2, 0.3, 0.4]}]})
HEADERS = {"Content-Type": "application/json"}
MOST_CONNECTIONS = 10_000


class Run:
    """The clock and the results of the one run of this process."""

    def __init__(self) -> None:
        self.rate = settings.rate()
        self.recorder: Recorder | Relay | None = None
        self.stopping = False
        self.terminated = False
        self.ended = False
        self.begun = Event()
        self.part, self.parts = 0, 1
        self._began = 0.0
        self._files: list[Any] = []
        self._report_seconds = REPORT_SECONDS if settings.workers else 0.0

    def begin(self, at: float | None = None, part: int = 0, parts: int = 1, relay: Relay | None = None) -> None:
        """t = 0 of the pattern is now, or at a Unix time.

        part, parts: which of the requests are sent here. relay: to record with on a worker, which writes no files.
        """
        if self.recorder is not None:
            return
        now = time.time()
        started_at = now if at is None else at
        self._began = time.perf_counter() - (now - started_at)
        self.part, self.parts = part, parts
        self.recorder = relay or self._record(started_at)
        self.begun.set()

    def _record(self, started_at: float) -> Recorder:
        timeline, requests = (self._open(path) for path in (settings.timeline, settings.requests))
        recorder = Recorder(self.rate, settings.slo_ms, settings.timeout * 1000, started_at, timeline, requests)
        if settings.started:
            write_json(settings.started, {"started_at": started_at})
        gevent.spawn(self._flush, recorder)
        return recorder

    def now(self) -> float:
        """Seconds of the run; negative before an announced begin."""
        return time.perf_counter() - self._began if self._began else 0.0

    @property
    def over(self) -> bool:
        """The pattern has ended and every request with it (or its time)."""
        if self.recorder is None or self.now() < settings.duration:
            return False
        drained = not settings.workers and self.recorder.outstanding == 0
        return drained or self.now() > settings.duration + settings.timeout + 1 + self._report_seconds

    def terminate(self) -> None:
        """End at the shape's next tick, with the results so far."""
        self.terminated = self.stopping = True

    def end(self) -> None:
        """Write the results, once."""
        if not isinstance(self.recorder, Recorder) or self.ended:
            return
        self.ended = True
        now = self.now()
        result = {
            "pattern": settings.pattern,
            "seed": settings.seed,
            **self.recorder.finish(now, interrupted=now < settings.duration),
        }
        for file in self._files:
            file.close()
        if settings.summary:
            write_json(settings.summary, result)
        if result["generator_late"]:
            logger.warning(
                "the load generator was late: 1 %% of the requests left %.0f ms or more after their time; "
                "latencies include that. Give it more CPU or less load.",
                result["dispatch_lag_p99_ms"],
            )

    def _open(self, path: Any) -> Any:
        if path is None:
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8", newline="")
        self._files.append(file)
        return file

    def _flush(self, recorder: Recorder) -> None:
        while not self.stopping:
            gevent.sleep(1.0 - self.now() % 1.0)
            if not self.stopping:
                recorder.flush(self.now() - self._report_seconds)


run = Run()


def begin() -> None:
    """Without workers the first user begins the run; users of a worker wait until the master announces it."""
    if settings.workers:
        run.begun.wait()
    else:
        run.begin()


class Client(FastHttpUser):
    """Sends inference requests and records their outcomes."""

    abstract = True
    network_timeout = settings.timeout
    connection_timeout = settings.timeout
    concurrency = MOST_CONNECTIONS

    def infer(self, scheduled: float) -> None:
        """Send one request now; its latency counts from `scheduled`, in seconds of the run."""
        recorder = run.recorder
        assert recorder is not None
        recorder.sent(scheduled, max(0.0, run.now() - scheduled) * 1000)
        with self.client.post(PATH, data=BODY, headers=HEADERS, name="infer", catch_response=True) as response:
            now = run.now()
            latency_ms = (now - scheduled) * 1000
            response.request_meta["response_time"] = latency_ms
            status = response.status_code or 0
            if status == 200 and latency_ms > settings.timeout * 1000:
                response.failure("answered after the client's timeout")
            pool = (response.headers or {}).get("X-Rlscaler-Pool", "")
            recorder.ended(now, scheduled, latency_ms, status, pool)


class OpenLoop(Client):
    """The one user of a process, which sends every request of its part at its time."""

    fixed_count = max(1, settings.workers)
    wait_time = constant(3600)

    @task
    def send_all(self) -> None:
        begin()
        requests = Group()
        for scheduled in settings.arrival_times()[run.part :: run.parts].tolist():
            pause = scheduled - run.now()
            if pause > 0:
                gevent.sleep(pause)
            if run.stopping:
                return
            requests.start(gevent.Greenlet(self.infer, scheduled))
        requests.join()


class PatternShape(LoadTestShape):
    """Holds the users of the open loop, and ends the run."""

    def tick(self) -> tuple[int, float] | None:
        orphaned = settings.parent is not None and os.getppid() != settings.parent
        if run.over or run.terminated or orphaned:
            return None
        return OpenLoop.fixed_count, OpenLoop.fixed_count


@events.init.add_listener
def _init(environment: Any, **_: Any) -> None:
    if settings.workers:
        connect(environment, run, settings.summary and settings.summary.parent)
    else:  # Headless, Locust itself handles SIGTERM only after a shape has ended.
        gevent.signal_handler(signal.SIGTERM, run.terminate)


@events.test_stopping.add_listener
def _stopping(**_: Any) -> None:
    run.stopping = True


@events.quitting.add_listener
def _quitting(environment: Any, **_: Any) -> None:
    run.end()
    # Failed requests are a result, not a failure of the run.
    if environment.process_exit_code is None:
        environment.process_exit_code = 0
