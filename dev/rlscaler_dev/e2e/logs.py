"""Output of the operator's pods, as long as each of them lives: their logs, and the decisions among the lines."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

from rlscaler_dev.cluster.kube import Json, KubeClient, collection
from rlscaler_dev.demo.tails import Tail
from rlscaler_dev.e2e.cluster import Commands
from rlscaler_dev.e2e.settings import OPERATOR_NAMESPACE, OPERATOR_RELEASE

STOP_SECONDS = 5.0


def operator_pods(kube: KubeClient) -> list[Json]:
    """Pods of the operator, terminating ones too."""
    path = f"{collection('v1', 'Pod', OPERATOR_NAMESPACE)}?labelSelector=app.kubernetes.io/name%3D{OPERATOR_RELEASE}"
    return list(kube.get(path)["items"])


class OperatorLogs:
    """Follows the log of every pod of the operator with `kubectl logs -f`; the lines of a pod that is killed remain.

    Decisions, JSON lines on the pods' output, are copied to the file that `to` names.
    """

    def __init__(self, kube: KubeClient, commands: Commands, folder: Path) -> None:
        self._kube, self._commands, self._folder = kube, commands, folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tails: dict[str, Tail] = {}
        self._audit: Path | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def to(self, audit: Path | None) -> None:
        """Copy the decisions that are written from now on to this file; None = nowhere."""
        self.pull()
        self._audit = audit
        if audit:
            audit.touch()

    def pull(self) -> None:
        """Follow pods that are new, and copy decisions."""
        for pod in operator_pods(self._kube):
            name = pod["metadata"]["name"]
            if name not in self._processes and _runs(pod):
                self._follow(name)
        lines = [line for tail in self._tails.values() for line in tail.lines() if _is_decision(line)]
        if self._audit and lines:
            with self._audit.open("a") as file:
                file.writelines(f"{line}\n" for line in lines)

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)

    def _follow(self, pod: str) -> None:
        path = self._folder / f"{pod}.log"
        command = self._commands.command("kubectl", "logs", "-f", "-n", OPERATOR_NAMESPACE, pod, "-c", "operator")
        with path.open("wb") as output:
            self._processes[pod] = subprocess.Popen(
                command, env=self._commands.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._tails[pod] = Tail(path)


def _runs(pod: Json) -> bool:
    """Return whether the pod has a container whose output can be followed."""
    return any("running" in status.get("state", {}) for status in pod["status"].get("containerStatuses", []))


def _is_decision(line: str) -> bool:
    if not line.startswith('{"'):
        return False
    try:
        return "decision_id" in json.loads(line)
    except ValueError:
        return False
