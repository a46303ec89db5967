"""test1 and test2 of the thesis: Deployments that come and go while users move, and where their pods were."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rlscaler_dev import markdown
from rlscaler_dev.placement.contenders import Contender
from rlscaler_dev.placement.users import Users

LOOK_SECONDS = 2.0
"""Longest time between two looks at the pods."""

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


class Bed(ABC):
    """Nodes on which one contender after the other places pods."""

    names: Sequence[str]
    """Names of the nodes."""

    @abstractmethod
    def placing(self, contender: Contender, folder: Path) -> AbstractContextManager[None]:
        """Return a context in which the contender places pods; none are left after it. Raises DevClusterError."""

    @abstractmethod
    def tell(self, latency_ms: Mapping[str, float]) -> None:
        """Write the latencies of these nodes."""

    @abstractmethod
    def create(self, name: str, contender: Contender) -> None:
        """Create a Deployment of one pod of the thesis, with limits of latency for EL alone."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a Deployment."""

    @abstractmethod
    def pods(self) -> dict[str, str | None]:
        """Return the node of each pod by its name; None while it waits for one."""

    @abstractmethod
    def seconds(self) -> float:
        """Return the time."""

    @abstractmethod
    def pause(self, seconds: float) -> None:
        """Let time pass."""


class _Observer:
    """Users of the nodes that move, and looks at the pods."""

    def __init__(self, bed: Bed, seed: int) -> None:
        self._bed, self._users, self._placed = bed, Users(bed.names, seed), dict[str, float]()
        self._before = dict(self._users.latency_ms)
        bed.tell(self._before)

    def move(self) -> None:
        """Let the users move, and tell the latencies of the nodes that have changed."""
        self._before = dict(self._users.latency_ms)
        self._bed.tell(self._users.move())

    def look(self, seconds: float, course: Course) -> None:
        """Add pods, nodes in use, latency (ms), limits met and evenness of this moment to the course."""
        pods, names = self._bed.pods(), self._bed.names
        bound = {pod: node for pod, node in pods.items() if node is not None}
        latency, count = self._users.latency_ms, dict.fromkeys(names, 0)
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
            course.nodes[name].append([round(shown[name][node], 4) for node in names])
        used = sum(number > 0 for number in count.values())
        row = {
            "seconds": round(seconds, 1),
            "pods": len(bound),
            "waiting": len(pods) - len(bound),
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


def play(bed: Bed, contender: Contender, plan: Plan, folder: Path, say: Callable[[Course], None]) -> Course:
    """Play the plan with one contender. Every contender gets the same pods and latencies. Raises DevClusterError."""
    folder.mkdir(parents=True, exist_ok=True)
    course = Course(contender.name)
    with bed.placing(contender, folder):
        observer, began = _Observer(bed, plan.seed), bed.seconds()

        def pause(seconds: float) -> None:
            end = bed.seconds() + seconds
            while True:
                observer.look(bed.seconds() - began, course)
                say(course)
                left = end - bed.seconds()
                # A simulated clock adds up with rounding errors.
                if left < 1e-6:
                    return
                bed.pause(min(left, LOOK_SECONDS))

        names: list[str] = []

        def come() -> None:
            observer.move()
            names.append(f"d-{len(names):03d}")
            bed.create(names[-1], contender)

        if plan.test == "test1":
            for _ in range(plan.repeats):
                first = len(names)
                for _ in range(plan.deployments):
                    come()
                    pause(plan.every_s)
                pause(plan.wait_s)
                for name in names[first:]:
                    bed.delete(name)
                pause(plan.every_s)
        else:
            for _ in range(plan.deployments):
                come()
                pause(plan.every_s)
            pause(plan.wait_s)
            for oldest in range(plan.deployments * (plan.repeats - 1)):
                bed.delete(names[oldest])
                come()
                pause(plan.every_s)
    return course


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
