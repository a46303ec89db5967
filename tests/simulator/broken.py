"""Simulators that are wrong on purpose: each does what a plausible mistake in a kernel would do to its state."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlscaler_rl.simulation.cluster import ClusterFacts, ClusterState
from rlscaler_rl.simulation.levels import Level


class Broken:
    """A level with a fault around it."""

    levels = ("fluid", "request")

    def __init__(self, level: Level) -> None:
        self.level = level

    def __getattr__(self, name: str) -> Any:
        """What the fault has nothing to do with is the level's own."""
        return getattr(self.level, name)

    def scale(self, facts: ClusterFacts, cluster: ClusterState, rows: Any, desired: Any, weights: Any) -> None:
        before = cluster.pool.copy()
        self.level.scale(facts, cluster, rows, desired, weights)
        self.after_scale(cluster, before)

    def advance(self, facts: ClusterFacts, cluster: ClusterState, rows: Any, seconds: int) -> None:
        before = cluster.pool.copy()
        self.level.advance(self.misread(facts), cluster, rows, seconds)
        self.after_advance(cluster, before)

    def misread(self, facts: ClusterFacts) -> ClusterFacts:
        return facts

    def after_scale(self, cluster: ClusterState, before: Any) -> None:
        """What goes wrong when replicas change."""

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        """What goes wrong when time passes."""


class PendingPodsAreNotBilled(Broken):
    broken = "billing"

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        cluster.pool["billed"] -= cluster.pool["pending_seconds"] - before["pending_seconds"]


class PendingPodsAreNotCountedAtAll(Broken):
    """Books that agree with each other and not with what was asked for."""

    broken = "billing"

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        cluster.pool["billed"] -= cluster.pool["pending_seconds"] - before["pending_seconds"]
        cluster.pool["pending_seconds"] = before["pending_seconds"]


class EveryPodIsBilledTwice(Broken):
    broken = "billing"

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        cluster.pool["billed"] += cluster.pool["billed"] - before["billed"]


class TheLedgerRunsSlowly(Broken):
    broken = "billing"

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        for name in ("billed", "ready_seconds", "pending_seconds"):
            cluster.pool[name] -= 0.1 * (cluster.pool[name] - before[name])


class APodVanishes(Broken):
    broken = "replicas"

    def after_scale(self, cluster: ClusterState, before: Any) -> None:
        cluster.pool["ready"] -= cluster.pool["ready"] > 1


class TheQueueLeaks(Broken):
    broken = "requests"

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        cluster.pool["queue"] *= 0.5
        cluster.pool["overdue"] *= 0.5


class RequestsAreLostWhenPodsLeave(Broken):
    broken = "requests"

    def after_scale(self, cluster: ClusterState, before: Any) -> None:
        leaving = cluster.pool["ready"] < before["ready"]
        cluster.pool["queue"] -= np.where(leaving, np.minimum(cluster.pool["queue"], 5), 0)


class DropsAreForgotten(Broken):
    broken = "requests"

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        cluster.row["dropped"] = 0


class DropsCountAsAnsweredInTime(Broken):
    """Every request is accounted for, as something that it was not."""

    broken = "work"

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        cluster.row["in_time"] += cluster.row["dropped"]
        cluster.row["dropped"] = 0


class ArrivalsAreMissed(Broken):
    broken = "requests"

    def misread(self, facts: ClusterFacts) -> ClusterFacts:
        return facts._replace(arrivals=np.floor(facts.arrivals / 2))


class ColdStartsAreFree(Broken):
    broken = "cold_start"

    def after_scale(self, cluster: ClusterState, before: Any) -> None:
        cluster.pool["ready"] += cluster.pool["waiting"]
        cluster.pool["waiting"] = 0


class ColdStartsAreHalved(Broken):
    broken = "cold_start"

    def after_scale(self, cluster: ClusterState, before: Any) -> None:
        new = cluster.pool["created"] > before["created"]
        cluster.left[new] *= 0.5


class NodesHaveRoomForEverything(Broken):
    broken = "cold_start"

    def misread(self, facts: ClusterFacts) -> ClusterFacts:
        pool = facts.pool.copy()
        pool["schedulable"] = 1000
        return facts._replace(pool=pool)


class ReplicasWorkTwiceAsFast(Broken):
    """Served without capacity."""

    broken = "work"

    def misread(self, facts: ClusterFacts) -> ClusterFacts:
        pool = facts.pool.copy()
        pool["rps"] *= 2
        return facts._replace(pool=pool)


class UtilizationIsUnderstated(Broken):
    broken = "work"

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        cluster.pool["busy_seconds"] *= 0.7


class PodsWorkBeforeTheyAreReady(Broken):
    broken = "busy"

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        cluster.pool["busy_seconds"] = 1.5 * cluster.pool["ready_seconds"]
        cluster.pool["work"] = cluster.pool["busy_seconds"] * np.array([20.0, 4.0])


class LateRequestsCountAsInTime(Broken):
    """Only where every latency was taken: at the level that judges."""

    broken = "latency"
    levels = ("request",)

    def misread(self, facts: ClusterFacts) -> ClusterFacts:
        row = facts.row.copy()
        row["slo"] *= 2
        return facts._replace(row=row)


class DroppedRequestsCountTwice(Broken):
    broken = "requests"

    def after_advance(self, cluster: ClusterState, before: Any) -> None:
        cluster.row["dropped"] += 0.1 * cluster.row["dropped"]


FAULTS: tuple[type[Any], ...] = tuple(Broken.__subclasses__())
