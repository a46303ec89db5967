"""Events of the operator's life while it scales: an upgrade, and the death of its leader."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.demo.records import Steps, read_records
from rlscaler_dev.demo.timeline import SPEC
from rlscaler_dev.e2e.cluster import Cluster
from rlscaler_dev.e2e.installation import Installation
from rlscaler_dev.e2e.play import Player
from rlscaler_dev.e2e.settings import OPERATOR_NAMESPACE, Play, Settings
from rlscaler_dev.exceptions import DemoError

UPGRADE_AT, KILL_AT = 0.15, 0.5
"""Shares of the load's time."""
TAKEOVER_SECONDS = 60.0
CHANGED = "operator.statusIntervalSeconds=240"
"""Any value that makes other pods."""


class Lifecycle:
    """Plays one run during which the operator is upgraded and its leader is killed."""

    def __init__(
        self, settings: Settings, cluster: Cluster, installation: Installation, say: Callable[[str], None]
    ) -> None:
        self._settings, self._cluster, self._installation, self._say = settings, cluster, installation, say
        self._upgraded: tuple[float, float] | None = None
        self._killed: tuple[float, float, str, str] | None = None

    def play(self, player: Player) -> dict[str, Any]:
        """Return begin and length, the longest pause between two decisions, and that replicas and history stayed."""
        seconds = self._settings.lifecycle_seconds
        play = Play("lifecycle", "rl", "periodic", seconds)

        def moment(elapsed: float) -> None:
            if elapsed > UPGRADE_AT * seconds and self._upgraded is None:
                self._upgrade()
            elif elapsed > KILL_AT * seconds and self._killed is None:
                self._kill()

        summary = player.play(play, moment)
        if self._upgraded is None or self._killed is None:
            raise DemoError("the load was over before operator and leader were changed: give it more --lifecycle")
        return {**self._report(self._settings.out / play.name), "summary": summary}

    def _upgrade(self) -> None:
        begin, before = time.time(), self._replicas()
        self._say(f"upgrading the operator; replicas {before}")
        self._installation.operator("upgrade", "--reuse-values", "--set", CHANGED)
        wait_until(lambda: self._installation.leader() != "", "a leader of the new pods", TAKEOVER_SECONDS)
        self._upgraded = begin, time.time()
        self._say(f"upgraded after {time.time() - begin:.1f} s; leader {self._installation.leader()}")

    def _kill(self) -> None:
        leader, begin = self._installation.leader(), time.time()
        if not leader:
            raise DemoError("no pod holds the operator's Lease: kubectl get lease -n rlscaler-system")
        self._say(f"killing the leader {leader}")
        self._cluster.commands.run(
            "kubectl", "delete", "pod", leader, "-n", OPERATOR_NAMESPACE, "--grace-period=0", "--force"
        )
        wait_until(lambda: self._installation.leader() not in ("", leader), "another leader", TAKEOVER_SECONDS)
        successor = self._installation.leader()
        self._killed = begin, time.time(), leader, successor
        self._say(f"{successor} leads after {time.time() - begin:.1f} s")

    def _replicas(self) -> dict[str, int]:
        path = "/apis/apps/v1/namespaces/demo/deployments"
        pods = self._installation.kube.get(path)["items"]
        return {d["metadata"]["name"]: d["spec"]["replicas"] for d in pods if d["metadata"]["name"].startswith("chat")}

    def _report(self, folder: Path) -> dict[str, Any]:
        assert self._upgraded
        assert self._killed
        records = read_records(folder / "data")
        times = np.sort(records.decisions.time)
        upgraded, (begin, end, leader, successor) = self._upgraded, self._killed
        return {
            "upgrade_seconds": round(upgraded[1] - upgraded[0], 1),
            "leader_killed": leader,
            "successor": successor,
            "takeover_seconds": round(end - begin, 1),
            "longest_pause_of_decisions_seconds": {
                "upgrade": longest_pause(times, *upgraded),
                "kill": longest_pause(times, begin, end),
                "whole_run": longest_pause(
                    times, records.run.started_at, records.run.started_at + len(records.offered_rps)
                ),
            },
            "lowest_replicas": {
                pool: {"upgrade": lowest(steps, *upgraded), "kill": lowest(steps, begin, end)}
                for pool, steps in records.replicas.items()
            },
        }


def longest_pause(times: np.ndarray[Any, Any], begin: float, end: float) -> float | None:
    """Between two decisions, of those pauses that touch [begin, end]; None without two decisions."""
    pauses = [later - earlier for earlier, later in pairwise(times) if later > begin and earlier < end]
    return round(float(max(pauses)), 1) if pauses else None


def lowest(steps: Steps, begin: float, end: float) -> int | None:
    """The lowest spec.replicas in [begin, end]."""
    moments = np.append(begin, steps.time[(steps.time > begin) & (steps.time < end)])
    values = steps.at(moments)[:, SPEC]
    return None if np.all(np.isnan(values)) else int(np.nanmin(values))
