"""Every value of `spec.replicas` that the Deployments of a namespace ever had, by watching the API server directly."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch
from urllib3.exceptions import HTTPError

from tests.harness.load import RPS

RECONNECT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Change:
    """One value of one Deployment."""

    time: float
    """Monotonic, when it was seen."""
    name: str
    replicas: int


class Replicas:
    """A watch that survives restarts of the API server: it goes on from where it was."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self._api = client.AppsV1Api(config.new_client_from_config(str(kubeconfig)))
        self._namespace = namespace
        self._changes: list[Change] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="replicas")
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(10)
        self._api.api_client.close()

    def _run(self) -> None:
        version = ""
        while not self._ended.is_set():
            try:
                version = self._watch(version or self._list())
            except client.ApiException as error:
                version = "" if error.status == 410 else version
                self._ended.wait(RECONNECT_SECONDS)
            except HTTPError:
                self._ended.wait(RECONNECT_SECONDS)

    def _list(self) -> str:
        listed = self._api.list_namespaced_deployment(self._namespace)
        for item in listed.items:
            self._note(item)
        return str(listed.metadata.resource_version)

    def _watch(self, version: str) -> str:
        """Until the server ends it, after 2 s; the version to go on from."""
        stream = watch.Watch().stream(
            self._api.list_namespaced_deployment, self._namespace, resource_version=version, timeout_seconds=2
        )
        for event in stream:
            version = event["object"].metadata.resource_version
            if event["type"] != "DELETED":
                self._note(event["object"])
        return version

    def _note(self, body: Any) -> None:
        self._changes.append(Change(time.monotonic(), body.metadata.name, body.spec.replicas))

    def of(self, service: str, since: float) -> list[tuple[int, int]]:
        """(GPU, CPU) after each change from `since` on, the value in force then included."""
        now = {"gpu": 0, "cpu": 0}
        seen: list[tuple[int, int]] = []
        begun = False
        for change in list(self._changes):
            pool = change.name.removeprefix(f"{service}-")
            if pool not in now or change.name == pool:
                continue
            if change.time >= since and not begun:
                seen.append((now["gpu"], now["cpu"]))
                begun = True
            now[pool] = change.replicas
            if begun:
                seen.append((now["gpu"], now["cpu"]))
        return seen or [(now["gpu"], now["cpu"])]

    def now(self, service: str) -> tuple[int, int]:
        """(GPU, CPU) as seen last."""
        return self.of(service, float("inf"))[-1]

    def lowest(self, service: str, since: float) -> tuple[int, int]:
        """The fewest replicas of each pool from `since` on."""
        seen = self.of(service, since)
        return min(gpu for gpu, _ in seen), min(cpu for _, cpu in seen)

    def weakest(self, service: str, since: float) -> tuple[int, int]:
        """(GPU, CPU) when both pools together could do least, from `since` on."""
        return min(self.of(service, since), key=capacity)


def described(replicas: tuple[int, int]) -> str:
    """As a report says it: both pools, and what they can do together."""
    return f"{replicas[0]}+{replicas[1]} ({capacity(replicas):g} req/s)"


def capacity(replicas: tuple[int, int]) -> float:
    """Requests per second that so many replicas answer."""
    return replicas[0] * RPS["gpu"] + replicas[1] * RPS["cpu"]
