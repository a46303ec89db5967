"""Node-hours of a simulated day by the pods that go when pools shrink.

python -m benchmarks.node_hours --out results/node-hours.json

Services of several sizes follow the day with phases of their own and hold, at each minute, the replicas that their load
needs. New pods land by a placement rule of `rlscaler_core.placement`. Pods that go are chosen in three ways: as a
ReplicaSet does without marks (nodes with the most pods of it first, then the youngest pods), by idleness alone, and by
idleness and what holds the nodes, both as the operator does. Each pod has requests in flight, Poisson drawn about
`--in-flight`. A node counts while it has a pod; whoever removes empty nodes takes longer than that, in each way alike.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.placement.mask import fits
from rlscaler_core.placement.policies import by_rule, choose
from rlscaler_core.placement.types import Nodes, empty_nodes, pod
from rlscaler_dev.benchmark import write
from rlscaler_loadgen.patterns import rates
from rlscaler_operator.actuation.leaving import Work, first_to_go
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.holders import UNKNOWN, Places

MINUTES = 1440
LOWEST, HIGHEST = 3.0, 24.0
"""Replicas of a service by night and at noon, before its scale."""
NOISE = 0.1
"""Standard deviation of the load's logarithm from one minute to the next."""
NODES, CPU_MILLI, MEMORY_MIB = 80, 16_000.0, 65_536.0
POD = pod(2000, 4096)
"""What each pod asks for: eight of them fill a node."""


@dataclass
class Cluster:
    """Who is where."""

    rule: str
    nodes: Nodes = field(default_factory=lambda: empty_nodes(np.tile([CPU_MILLI, MEMORY_MIB], (NODES, 1))))
    where: dict[Key, int] = field(default_factory=dict)
    """The node of each pod, the oldest pods first."""
    created: int = 0

    def add(self, service: str) -> None:
        """Place a new pod."""
        scores = by_rule(self.rule, self.nodes, POD)
        node = int(choose(scores, self.nodes, POD, fits(self.nodes, POD)))
        assert node >= 0, "the nodes are full: there must be more of them"
        self.created += 1
        self.where[service, f"{self.created:08d}"] = node
        self._count(node, 1)

    def remove(self, key: Key) -> None:
        """Take a pod away."""
        self._count(self.where.pop(key), -1)

    def _count(self, node: int, pods: int) -> None:
        self.nodes.pods[node] += pods
        self.nodes.requested[node] += pods * POD.requests

    def places(self) -> Places:
        """The nodes in use, each as its holders."""
        held: dict[int, set[Key]] = defaultdict(set)
        for key, node in self.where.items():
            held[node].add(key)
        return Places(tuple(map(frozenset, held.values())))


def by_replica_set(cluster: Cluster, work: dict[Key, Work], number: int) -> set[Key]:
    """As the controller ranks pods that are ready: crowded nodes first, then the youngest."""
    crowd: dict[int, int] = defaultdict(int)
    for key in work:
        crowd[cluster.where[key]] += 1
    order = sorted(work, key=lambda key: (crowd[cluster.where[key]], key), reverse=True)
    return set(order[:number])


def by_idleness(cluster: Cluster, work: dict[Key, Work], number: int) -> set[Key]:
    """As the operator does where it does not see all pods."""
    del cluster
    return first_to_go(work, number, UNKNOWN)


def by_nodes(cluster: Cluster, work: dict[Key, Work], number: int) -> set[Key]:
    """As the operator does where it sees them."""
    return first_to_go(work, number, cluster.places())


WAYS: dict[str, Callable[[Cluster, dict[Key, Work], int], set[Key]]] = {
    "replica-set": by_replica_set,
    "idle": by_idleness,
    "idle, then nodes": by_nodes,
}


def replicas_of(services: int, seed: int) -> NDArray[np.int64]:
    """(services, MINUTES) replicas that the load needs."""
    rng = np.random.default_rng(seed)
    load = rates(
        "periodic",
        MINUTES,
        rng,
        services,
        low=LOWEST,
        high=HIGHEST,
        period_s=MINUTES,
        scale_range=(0.3, 1.5),
        random_phase=True,
    )
    noisy = load * np.exp(NOISE * rng.standard_normal(load.shape))
    return np.maximum(1, np.ceil(noisy)).astype(int)


def play(services: int, seed: int, rule: str, way: str, in_flight: float) -> dict[str, float]:
    """One day; node-hours, and requests in flight at the pods that went."""
    rng, cluster = np.random.default_rng([seed, 1]), Cluster(rule)
    node_minutes, lost = 0, 0.0
    for wanted in replicas_of(services, seed).T:
        for index, number in enumerate(wanted):
            service = f"s{index}"
            mine = [key for key in cluster.where if key[0] == service]
            for _ in range(number - len(mine)):
                cluster.add(service)
            if number < len(mine):
                drawn = rng.poisson(in_flight, len(mine)).tolist()
                work = {key: (float(now), 0.0, 0.0) for key, now in zip(mine, drawn, strict=True)}
                for key in WAYS[way](cluster, work, len(mine) - int(number)):
                    lost += work[key][0]
                    cluster.remove(key)
        node_minutes += int((cluster.nodes.pods > 0).sum())
    return {"node_hours": node_minutes / 60, "in_flight_at_pods_that_went": lost}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, action="append", help="how many share the nodes")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--in-flight", type=float, action="append")
    parser.add_argument("--rule", action="append")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    cases = itertools.product(
        options.rule or ("pack", "spread"), options.services or (2, 12), options.in_flight or (0.0, 0.5, 2.0), WAYS
    )
    for rule, services, in_flight, way in cases:
        days = [play(services, seed, rule, way, in_flight) for seed in range(options.seeds)]
        means = {name: round(float(np.mean([day[name] for day in days])), 1) for name in days[0]}
        rows.append({"rule": rule, "services": services, "in_flight": in_flight, "way": way, **means})
        print(json.dumps(rows[-1]), flush=True)
    write(options.out, rows, indent=1)


if __name__ == "__main__":
    main()
