"""Following one collection of objects, or several at once."""

from __future__ import annotations

import contextlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Self

import requests

from rlscaler_dev.cluster.kube import Json, KubeClient, collection
from rlscaler_dev.exceptions import ApiError

WATCH_SECONDS = 240
"""The server ends a watch after that time, and it is renewed."""
TIMEOUT_SECONDS = (15.0, 300.0)
"""Longest wait for a connection, and for the next event."""
RETRY_SECONDS = 0.5
STOP_SECONDS = 10.0
GONE = 410


class Watch(threading.Thread):
    """Follows one collection until stopped; reconnects and lists again as needed.

    `replace` gets all objects after every list, `change` every event (ADDED, MODIFIED or DELETED, object) after that.
    Both run in this thread, one at a time.
    """

    def __init__(
        self, kube: KubeClient, path: str, replace: Callable[[list[Json]], None], change: Callable[[str, Json], None]
    ) -> None:
        super().__init__(name=f"watch {path}", daemon=True)
        self._kube, self._path = kube, path
        self._replace, self._change = replace, change
        self._stopping = threading.Event()
        self._answer: requests.Response | None = None
        self.synced = threading.Event()
        self.error: ApiError | None = None
        """Why the collection cannot be followed at the moment."""

    def run(self) -> None:
        version = ""
        while not self._stopping.is_set():
            try:
                if not version:
                    version = self._list()
                for event in self._events(version):
                    version = self._handle(event)
            except ApiError as error:
                self.error = error
                version = "" if error.status == GONE else version
                self._stopping.wait(RETRY_SECONDS)

    def stop(self) -> None:
        """End the thread, also out of a blocked read."""
        self._stopping.set()
        answer = self._answer
        if answer is not None:
            with contextlib.suppress(ValueError, OSError):  # the read has ended by itself
                answer.raw.shutdown()
        if self.is_alive():
            self.join(STOP_SECONDS)

    def _list(self) -> str:
        answer = self._kube.get(self._path)
        self._replace(answer["items"])
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    def _events(self, version: str) -> Iterator[Json]:
        query = {
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
            "allowWatchBookmarks": "true",
        }
        with self._kube.open("GET", self._path, params=query, stream=True, timeout=TIMEOUT_SECONDS) as answer:
            self._answer, self.error = answer, None
            try:
                for line in answer.iter_lines(chunk_size=None):
                    if line:
                        yield json.loads(line)
                    if self._stopping.is_set():
                        return
            except (OSError, ValueError) as error:
                raise ApiError(f"watch {self._path}: {error}") from error
            finally:
                self._answer = None

    def _handle(self, event: Json) -> str:
        kind, thing = event["type"], event["object"]
        if kind == "ERROR":
            raise ApiError(f"watch {self._path}: {thing.get('message')}", int(thing.get("code", 0)))
        if kind != "BOOKMARK":
            self._change(kind, thing)
        return str(thing["metadata"]["resourceVersion"])


class Watches(ABC):
    """Base of classes that follow several collections at once; a context manager that starts and stops their watches.

    Events of all of them are taken one at a time, under `_lock`, and `_changed` is called after each.
    """

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._lock = threading.Lock()
        self._watches: list[Watch] = []

    def __enter__(self) -> Self:
        for watch in self._watches:
            watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        for watch in self._watches:
            watch.stop()

    @property
    def synced(self) -> bool:
        """Whether every collection has been listed."""
        return all(watch.synced.is_set() for watch in self._watches)

    @property
    def error(self) -> str | None:
        """Why a collection cannot be followed at the moment."""
        return next((watch.error.message for watch in self._watches if watch.error), None)

    @abstractmethod
    def _changed(self) -> None:
        """Called under the lock after each event and after each list."""

    def _follow(
        self,
        api_version: str,
        kind: str,
        take: Callable[[str, Json], None],
        forget: Callable[[], None] | None = None,
        namespace: str | None = None,
    ) -> None:
        """Follow a collection: `take` gets every event, `forget` is called before a new list is taken."""

        def change(event: str, thing: Json) -> None:
            with self._lock:
                take(event, thing)
                self._changed()

        def replace(things: list[Json]) -> None:
            with self._lock:
                if forget:
                    forget()
                for thing in things:
                    take("ADDED", thing)
                self._changed()

        self._watches.append(Watch(self._kube, collection(api_version, kind, namespace), replace, change))
