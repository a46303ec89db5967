"""Following a collection of objects."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import urllib3

from rlscaler_dev.demo.kube import Json, Kube, KubeError

WATCH_SECONDS = 240
"""The server ends a watch after that time, and it is renewed."""

RETRY_SECONDS = 0.5
STOP_SECONDS = 10.0
GONE = 410


class Watch(threading.Thread):
    """Follows one collection until stopped; reconnects and lists again as needed.

    `replace` gets all objects after every list, `change` every event (ADDED, MODIFIED or DELETED, object) after that.
    Both run in this thread, one at a time.
    """

    def __init__(
        self, kube: Kube, path: str, replace: Callable[[list[Json]], None], change: Callable[[str, Json], None]
    ) -> None:
        super().__init__(name=f"watch {path}", daemon=True)
        self._kube, self._path = kube, path
        self._replace, self._change = replace, change
        self._stopping = threading.Event()
        self._response: Any = None
        self.synced = threading.Event()
        self.error: KubeError | None = None

    def run(self) -> None:
        version = ""
        while not self._stopping.is_set():
            try:
                if not version:
                    version = self._list()
                for event in self._events(version):
                    version = self._handle(event)
                self.error = None
            except KubeError as error:
                self.error = error
                version = "" if error.status == GONE else version
                self._stopping.wait(RETRY_SECONDS)

    def stop(self) -> None:
        """End the thread, also out of a blocked read."""
        self._stopping.set()
        response = self._response
        if response is not None:
            with contextlib.suppress(ValueError, OSError):  # the read has ended by itself
                response.shutdown()
        if self.is_alive():
            self.join(STOP_SECONDS)

    def _list(self) -> str:
        answer = self._kube.get(self._path)
        self._replace(answer["items"])
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    def _events(self, version: str) -> Iterator[Json]:
        query = urlencode({"watch": "true", "resourceVersion": version, "timeoutSeconds": WATCH_SECONDS})
        response = self._response = self._kube.open("GET", f"{self._path}?{query}&allowWatchBookmarks=true")
        buffer = b""
        try:
            for chunk in response.stream(65536):
                *lines, buffer = (buffer + chunk).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
                if self._stopping.is_set():
                    return
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubeError(f"watch {self._path}: {error}") from error
        finally:
            self._response = None
            response.close()

    def _handle(self, event: Json) -> str:
        kind, thing = event["type"], event["object"]
        if kind == "ERROR":
            raise KubeError(f"watch {self._path}: {thing.get('message')}", int(thing.get("code", 0)))
        if kind != "BOOKMARK":
            self._change(kind, thing)
        return str(thing["metadata"]["resourceVersion"])
