"""What the machine can do: patch every Deployment as soon as the load steps, and nothing else.

    python -m benchmarks.scale.bare SERVER METRICS CA CERTIFICATE KEY

No decision, no status, no watch: sixteen requests at a time, as many as the operator sends. The autoscalers' times are
to be read beside its own.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import requests
from benchmarks.scale.load import HIGH, LOW
from benchmarks.scale.objects import APPS, MOST, START

REQUESTS_AT_ONCE = 16
POLL_SECONDS = 1.0
PATCH = [
    {"op": "test", "path": "/spec/replicas", "value": START},
    {"op": "add", "path": "/spec/replicas", "value": MOST},
]

_local = threading.local()


def received(metrics: str) -> float:
    """The counter of the first service: all of them count alike."""
    with requests.get(metrics, stream=True, timeout=10) as answer:
        return float(next(answer.iter_lines()).split()[-1])


def wait_for_step(metrics: str) -> None:
    """Until the counter rises faster than before the step."""
    count, at = received(metrics), time.monotonic()
    while True:
        time.sleep(POLL_SECONDS)
        before, since = count, at
        count, at = received(metrics), time.monotonic()
        if (count - before) / (at - since) > (LOW + HIGH) / 20:
            return


def patch(server: str, ca: str, certificate: tuple[str, str], name: str) -> None:
    """One scale write as the operator's, over a connection that the thread keeps."""
    session = getattr(_local, "session", None)
    if session is None:
        session = _local.session = requests.Session()
        session.verify, session.cert, session.trust_env = ca, certificate, False
    headers = {"Content-Type": "application/json-patch+json"}
    url = f"{server}{APPS}/{name}/scale"
    session.patch(url, json=PATCH, headers=headers, timeout=60).raise_for_status()


def main() -> None:
    server, metrics, ca, certificate, key = sys.argv[1:]
    session = requests.Session()
    session.verify, session.cert, session.trust_env = ca, (certificate, key), False
    answer = session.get(f"{server}{APPS}", timeout=60)
    answer.raise_for_status()
    names = [body["metadata"]["name"] for body in answer.json()["items"]]
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        wait_for_step(metrics)
        list(pool.map(patch, repeat(server), repeat(ca), repeat((certificate, key)), names))
    signal.pause()  # it ends with the cluster, as autoscalers do


if __name__ == "__main__":
    main()
