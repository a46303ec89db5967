"""When each Deployment's `spec.replicas` was patched, from a watch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import requests
from benchmarks.scale.load import NAMESPACE

PATH = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


class Watch:
    """Keeps the monotonic time at which each Deployment was first seen with more replicas than it began with."""

    def __init__(self, server: str, session: requests.Session, start: int) -> None:
        self._server, self._session, self._start = server, session, start
        self.grown: dict[str, float] = {}
        self._failure: Exception | None = None
        answer = session.get(f"{server}{PATH}", timeout=60)
        answer.raise_for_status()
        listed = answer.json()
        early = [body["metadata"]["name"] for body in listed["items"] if body["spec"].get("replicas", 1) > start]
        if early:
            raise RuntimeError(f"{len(early)} Deployments have grown before the step, {early[0]} among them")
        self._version = listed["metadata"]["resourceVersion"]
        self._closed, self._stream = False, self._open()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _open(self) -> requests.Response:
        """A stream of what came after the last event that was seen."""
        stream = self._session.get(
            f"{self._server}{PATH}",
            params={"watch": "1", "resourceVersion": self._version, "timeoutSeconds": "3600"},
            stream=True,
            timeout=(10, None),
        )
        stream.raise_for_status()
        return stream

    def _follow(self) -> None:
        """The API server ends the stream of a watcher that falls behind: go on from the last event then."""
        try:
            while True:
                for line in self._stream.iter_lines(chunk_size=None):
                    if line:
                        self._take(json.loads(line), time.monotonic())
                if self._closed:
                    return
                self._stream = self._open()
        except Exception as error:
            self._failure = error

    def _take(self, event: dict[str, Any], seen: float) -> None:
        if event["type"] == "ERROR":
            raise RuntimeError(event["object"].get("message", "the watch failed"))
        body = event["object"]
        self._version = body["metadata"]["resourceVersion"]
        if body["spec"].get("replicas", 1) > self._start:
            self.grown.setdefault(body["metadata"]["name"], seen)

    def wait(self, enough: Callable[[], bool], seconds: float) -> bool:
        """Until `enough`, or False after `seconds`. Raises what ended the watch."""
        deadline = time.monotonic() + seconds
        pause = threading.Event()
        while time.monotonic() < deadline:
            if self._failure is not None:
                raise self._failure
            if enough():
                return True
            pause.wait(0.1)
        return False

    def close(self) -> None:
        self._closed, self._failure = True, None
        self._session.close()
