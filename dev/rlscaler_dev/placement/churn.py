"""test1 and test2 of the thesis on the real kube-scheduler: Deployments that come and go, and where their pods were."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rlscaler_core.placement.policies import Policy
from rlscaler_dev import markdown
from rlscaler_dev.cluster import objects
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.readiness import wait_until
from rlscaler_dev.placement import testbed
from rlscaler_dev.placement.contenders import Contender
from rlscaler_dev.placement.users import Users
from rlscaler_scheduler.annotations import HARD, POLICY, SOFT
from rlscaler_scheduler.configuration import PROFILE
from rlscaler_scheduler.objects import LATENCY

NAMESPACE = "placement"
READY_SECONDS = 120.0
PARALLEL = 8
"""Requests at a time."""

CPU_MILLI, MEMORY_MIB = 250, 64
"""Requests of each pod, as the thesis has them."""
SOFT_MS, HARD_MS = 20.0, 30.0
"""Its limits of latency, which the pods of EL state."""
SIZE = (16, 64)
"""Cores and GiB of each node; the thesis' nodes are equal, and one has room for all pods."""

OF_NODES = ("pods", "cpu", "memory", "latency_ms")
"""Observations of each node: pods, requested shares of CPU and memory, and round trip to the users."""


@dataclass(frozen=True)
class Plan:
    """Course of the test: Deployments that come and go."""

    test: str
    """test1: all come, then all go, again. test2: all come, then the oldest goes whenever a new one comes."""
    deployments: int = 30
    every_s: float = 3.0
    wait_s: float = 20.0
    repeats: int = 2
    """test1: how often. test2: new Deployments beyond the first, as a multiple of `deployments`, less one."""
    seed: int = 0


@dataclass
class Course:
    """Observations of one contender."""

    contender: str
    rows: list[dict[str, float]] = field(default_factory=list)
    nodes: dict[str, list[list[float]]] = field(default_factory=lambda: {name: [] for name in OF_NODES})
    """Each of OF_NODES at every look, by node."""

    def means(self) -> dict[str, float]:
        """Means over the looks at which pods were bound."""
        full = [row for row in self.rows if row["pods"] > 0]
        return {name: fmean(row[name] for row in full) for name in full[0]} if full else {}


def deployment(name: str, contender: Contender) -> dict[str, Any]:
    """One pod of the thesis by the scheduler of the contender; with limits of latency for EL alone."""
    body = testbed.pod(
        name,
        NAMESPACE,
        cpu=f"{CPU_MILLI}m",
        memory=f"{MEMORY_MIB}Mi",
        scheduler="default-scheduler" if contender.policy is None else PROFILE,
    )
    limits = {SOFT[0]: f"{SOFT_MS:g}", HARD[0]: f"{HARD_MS:g}"} if contender.policy is Policy.EL else {}
    policy = {} if contender.policy is None else {POLICY: str(contender.policy)}
    return objects.deployment(name, NAMESPACE, body["spec"], annotations=limits | policy)


class Testbed:
    """Nodes on a cluster whose users move, and observations of the pods on them."""

    def __init__(self, kube: KubeClient, count: int, seed: int) -> None:
        self.kube, self._seed = kube, seed
        self.names = testbed.node_names(count)
        kube.create(objects.namespace(NAMESPACE))
        # A run that was killed leaves its Deployments on the cluster, and a larger one its nodes.
        _clear(kube)
        pool = "%2C".join(f"{label}%3D{value}" for label, value in testbed.POOL.items())
        for item in kube.get(f"/api/v1/nodes?labelSelector={pool}")["items"]:
            if item["metadata"]["name"] not in self.names:
                kube.delete(f"/api/v1/nodes/{item['metadata']['name']}")
        self.begin()

    def begin(self) -> None:
        """Put the users where every contender meets them first."""
        self._users, self._placed = Users(self.names, self._seed), dict[str, float]()
        self._before = dict(self._users.latency_ms)
        self.kube.apply_all(testbed.node(name, SIZE, value) for name, value in self._before.items())

    def move(self) -> None:
        """Let the users move, and write the latencies of the nodes that have changed."""
        self._before = dict(self._users.latency_ms)
        moved = self._users.move()
        with ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(self._tell, moved, moved.values()))

    def _tell(self, name: str, latency_ms: float) -> None:
        # A merge costs the API server a fraction of an apply, and a jump changes most nodes.
        body = {"metadata": {"annotations": {LATENCY: str(latency_ms)}}}
        self.kube.merge(f"/api/v1/nodes/{name}", body)

    def look(self, seconds: float, course: Course) -> None:
        """Add pods, nodes in use, latency (ms), limits met and evenness of this moment to the course."""
        pods = self.kube.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        live = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        bound = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in live if pod["spec"].get("nodeName")}
        latency, count = self._users.latency_ms, dict.fromkeys(self.names, 0)
        for pod, node in bound.items():
            count[node] += 1
            # The users may have moved between the placement and this look.
            self._placed.setdefault(pod, min(latency[node], self._before[node]))
        here = [latency[node] for node in bound.values()]
        cpu, memory = CPU_MILLI / (1000 * SIZE[0]), MEMORY_MIB / (1024 * SIZE[1])
        shown: dict[str, Mapping[str, float]] = {
            "pods": count,
            "cpu": {node: number * cpu for node, number in count.items()},
            "memory": {node: number * memory for node, number in count.items()},
            "latency_ms": latency,
        }
        for name in OF_NODES:
            course.nodes[name].append([round(shown[name][node], 4) for node in self.names])
        used = sum(number > 0 for number in count.values())
        row = {
            "seconds": round(seconds, 1),
            "pods": len(bound),
            "waiting": len(live) - len(bound),
            "nodes_in_use": used,
            "pods_per_node": len(bound) / max(used, 1),
            "latency_ms": fmean(here) if here else 0.0,
            "latency_met": fmean(map(_met, here)) if here else 0.0,
            "above_hard": sum(value > HARD_MS for value in here),
            "placed_above_hard": sum(self._placed[pod] > HARD_MS for pod in bound),
            "uneven": pstdev(shown["cpu"].values()),
        }
        course.rows.append(row)


def _met(latency: float) -> float:
    return 1.0 if latency <= SOFT_MS else 0.5 if latency <= HARD_MS else 0.0


def play(
    bed: Testbed,
    kubeconfig: Path,
    contender: Contender,
    plan: Plan,
    folder: Path,
    say: Callable[[Course], None],
) -> Course:
    """Play the plan with one contender. Every contender gets the same pods and latencies. Raises DevClusterError."""
    folder.mkdir(parents=True, exist_ok=True)
    course = Course(contender.name)
    with ExitStack() as stack:
        if contender.policy is not None:
            server = testbed.Suggestions(kubeconfig, folder, *contender.options(), "--scheduler-name", PROFILE)
            stack.callback(server.stop)
            wait_until(server.ready, "the readiness of the suggestion server", READY_SECONDS)
            stack.enter_context(testbed.second_scheduler(kubeconfig, server.url, folder))
        stack.callback(_clear, bed.kube)
        bed.begin()
        began = time.monotonic()

        def pause(seconds: float) -> None:
            end = time.monotonic() + seconds
            while True:
                bed.look(time.monotonic() - began, course)
                say(course)
                left = end - time.monotonic()
                if left <= 0:
                    return
                time.sleep(min(left, 2.0))

        names: list[str] = []

        def come() -> None:
            bed.move()
            names.append(f"d-{len(names):03d}")
            bed.kube.create(deployment(names[-1], contender))

        if plan.test == "test1":
            for _ in range(plan.repeats):
                first = len(names)
                for _ in range(plan.deployments):
                    come()
                    pause(plan.every_s)
                pause(plan.wait_s)
                for name in names[first:]:
                    _delete(bed.kube, name)
                pause(plan.every_s)
        else:
            for _ in range(plan.deployments):
                come()
                pause(plan.every_s)
            pause(plan.wait_s)
            for oldest in range(plan.deployments * (plan.repeats - 1)):
                _delete(bed.kube, names[oldest])
                come()
                pause(plan.every_s)
    return course


def _delete(kube: KubeClient, name: str) -> None:
    kube.delete(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}")


def _clear(kube: KubeClient) -> None:
    for item in kube.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")["items"]:
        _delete(kube, item["metadata"]["name"])
    gone = f"/api/v1/namespaces/{NAMESPACE}/pods"
    wait_until(lambda: not kube.get(gone)["items"], "the end of the pods", READY_SECONDS)


def table(courses: Sequence[Course]) -> str:
    """Return the means as Markdown."""
    columns = (
        *("nodes_in_use", "pods_per_node", "latency_ms", "latency_met", "above_hard", "placed_above_hard"),
        *("uneven", "waiting"),
    )
    rows = [[course.contender, *(f"{course.means().get(name, 0):.2f}" for name in columns)] for course in courses]
    return markdown.table(("scheduler", *columns), rows)


def plain(plan: Plan, courses: Sequence[Course]) -> dict[str, Any]:
    """For a JSON file."""
    return {"plan": asdict(plan), "courses": [asdict(course) | {"means": course.means()} for course in courses]}
