"""Play the day after on a real API server: Deployments are scaled, and running pods are resized by `pods/resize`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from kubernetes.utils.quantity import parse_quantity

from rlscaler_dev import markdown
from rlscaler_dev.cluster import objects
from rlscaler_dev.cluster.kube import Json, KubeClient, collection
from rlscaler_dev.demo.vertical.services import (
    CPU_LIMIT,
    MEMORY_LIMIT,
    STEP_SECONDS,
    STEPS_A_DAY,
    Figures,
    Pods,
    Service,
    Size,
    day,
    replicas,
)
from rlscaler_dev.demo.vertical.sizers import Begun, Contender, Reward, begun
from rlscaler_dev.exceptions import DemoError
from rlscaler_dev.placement import testbed

NAMESPACE = "vertical"
NODES, NODE_SIZE = 6, (64, 256)
SETTLE_SECONDS = 60.0
"""Longest wait for pods of a step to run with their sizes."""

HEAD = (
    *("service", "sizes by", "scale of a pod", "$", "against replicas alone", "late (%)", "killed"),
    *("mean response (ms)", "resizes"),
)


@dataclass(frozen=True)
class Play:
    """Settings of a run."""

    seed: int = 1
    guess: float = 2.0
    """Requests of the templates over the highest use of the day before."""
    reward: Reward = "cost"
    steps: int = STEPS_A_DAY
    """Steps of ten minutes that are played on the cluster."""


@dataclass
class Course:
    """One contender and service over time."""

    contender: Contender
    service: Service
    scale: float
    figures: Figures = field(default_factory=Figures)
    rows: list[dict[str, float]] = field(default_factory=list)


def play(kube: KubeClient, contenders: Sequence[Contender], services: Sequence[Service], this: Play,
         say: Callable[[str], None]) -> list[Course]:  # fmt: skip
    """Play all contenders and services beside each other. Raises DemoError where pods do not get their size."""
    kube.create(objects.namespace(NAMESPACE))
    kube.apply_all(testbed.node(name, NODE_SIZE, None) for name in testbed.node_names(NODES))
    stages = [_Stage(kube, contender, service, this) for contender in contenders for service in services]
    for step in range(this.steps):
        for stage in stages:
            stage.scale(step)
        for stage in stages:
            stage.step(step)
        if step % 12 == 0 or step == this.steps - 1:
            dollars = {c.title: sum(s.course.figures.dollars for s in stages if s.contender == c) for c in contenders}
            shown = ", ".join(f"{title} ${amount:.2f}" for title, amount in dollars.items())
            say(f"{step * STEP_SECONDS / 3600:4.1f} h: {shown}")
    return [stage.course for stage in stages]


class _Stage:
    """One Deployment."""

    def __init__(self, kube: KubeClient, contender: Contender, service: Service, this: Play) -> None:
        self.kube, self.contender, self.service = kube, contender, service
        self.name = f"{contender.name}-{service.name}"
        self._begun: Begun = begun(contender, service, this.seed, this.guess, this.reward)
        self._rate = day(service, this.seed + 1)
        self._pods, self._wanted = Pods(service, 0), 0
        self.course = Course(contender, service, self._begun.scale)
        spec = testbed.pod(self.name, scheduler="default-scheduler")["spec"]
        spec["containers"][0]["resources"] = resources(self._begun.template)
        kube.delete(f"{collection('apps/v1', 'Deployment', NAMESPACE)}/{self.name}")
        kube.apply(objects.deployment(self.name, NAMESPACE, spec, replicas=0))

    def scale(self, step: int) -> None:
        """Write the replicas of a step."""
        wanted = replicas(self._rate[step], self._begun.scale)
        if wanted != self._wanted:
            self._wanted = wanted
            path = f"{collection('apps/v1', 'Deployment', NAMESPACE)}/{self.name}/scale"
            self.kube.merge(path, {"spec": {"replicas": wanted}})

    def step(self, step: int) -> None:
        """Let the pods work for a step, and give them the size that follows."""
        running = self._settled()
        names, rate = sorted(running), float(self._rate[step])
        cores, memory = np.array([running[name] for name in names]).T
        use = self._pods.use(names, rate)
        killed = self.course.figures.add(self.service, use, cores, memory)
        for name, gone in zip(names, killed, strict=True):
            if gone:
                self._pods.kill(name)
        self.course.rows.append(
            {
                "hours": step * STEP_SECONDS / 3600,
                "pods": len(names),
                "cores": float(cores.sum()),
                "gib": float(memory.sum()) / 2**30,
                "used_cores": float(use.cores.sum()),
                "used_gib": float(use.memory.sum()) / 2**30,
            }
        )
        self._begun.size = self._begun.look(86_400.0 + STEP_SECONDS * step, use, use.memory[killed])
        self._resize(running)

    def _resize(self, running: dict[str, Size]) -> None:
        wanted = resources(self._begun.size)
        for name, size in running.items():
            if resources(size) != wanted:
                body = {"spec": {"containers": [{"name": "c", "resources": wanted}]}}
                path = f"{collection('v1', 'Pod', NAMESPACE)}/{name}/resize"
                self.kube.request("PATCH", path, body, content_type="application/strategic-merge-patch+json")
                self.course.figures.resizes += 1

    def _settled(self) -> dict[str, Size]:
        """Return the sizes with which the pods run, once there are as many as wanted and their kubelets have acted."""
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            running = self._running()
            if running is not None and len(running) == self._wanted:
                return running
            if time.monotonic() > until:
                raise DemoError(f"{self.name}: {self._wanted} pods did not run with their size in {SETTLE_SECONDS:g} s")
            time.sleep(0.1)

    def _running(self) -> dict[str, Size] | None:
        """Return the size of each pod by its kubelet; None while one differs from its spec."""
        items = self.kube.get(f"{collection('v1', 'Pod', NAMESPACE)}?labelSelector=app%3D{self.name}")["items"]
        running: dict[str, Size] = {}
        for pod in items:
            if pod["metadata"].get("deletionTimestamp"):
                continue
            status = (pod["status"].get("containerStatuses") or [{}])[0].get("resources")
            if status != pod["spec"]["containers"][0]["resources"]:
                return None
            requests = status["requests"]
            running[pod["metadata"]["name"]] = (
                float(parse_quantity(requests["cpu"])),
                float(parse_quantity(requests["memory"])),
            )
        return running


def resources(size: Size) -> Json:
    """Return requests and limits of a container."""

    def amounts(cores: float, memory: float) -> dict[str, str]:
        return {"cpu": f"{max(round(1000 * cores), 1)}m", "memory": f"{round(memory / 2**20)}Mi"}

    requests = amounts(*size)
    # Limits follow the written requests, so that the same size is the same text.
    cores, memory = float(parse_quantity(requests["cpu"])), float(parse_quantity(requests["memory"]))
    return {"requests": requests, "limits": amounts(CPU_LIMIT * cores, MEMORY_LIMIT * memory)}


def plain(courses: Sequence[Course], this: Play) -> dict[str, Any]:
    """For a JSON file."""
    return {
        "play": vars(this),
        "courses": [
            {
                "contender": course.contender.name,
                "service": course.service.name,
                "scale": course.scale,
                "figures": vars(course.figures)
                | {"late_percent": course.figures.late_percent, "response_ms": course.figures.response_ms},
                "rows": course.rows,
            }
            for course in courses
        ],
    }


def table(courses: Sequence[Course]) -> str:
    """Return the figures as Markdown."""
    alone = {course.service: course.figures.dollars for course in courses if course.contender.name == "alone"}
    rows = []
    for course in courses:
        figures, rival = course.figures, alone.get(course.service)
        against = f"{100 * (figures.dollars / rival - 1):+.0f} %" if rival else "-"
        rows.append(
            (
                course.service.name,
                course.contender.title,
                f"{course.scale:g}",
                f"{figures.dollars:.2f}",
                against,
                f"{figures.late_percent:.2f}",
                f"{figures.killed}",
                f"{figures.response_ms:.0f}",
                f"{figures.resizes}",
            )
        )
    return markdown.table(HEAD, rows)
