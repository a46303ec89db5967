"""test1 and test2 of the thesis on the real kube-scheduler: Deployments that come and go, and where their pods were."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from rlscaler_core.placement.policies import Policy
from rlscaler_dev import markdown
from rlscaler_dev.cluster import objects
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.exceptions import DevClusterError
from rlscaler_dev.placement import testbed
from rlscaler_scheduler.annotations import HARD, POLICY, SOFT
from rlscaler_scheduler.configuration import PROFILE
from rlscaler_scheduler.objects import LATENCY

DEFAULT = "default"
"""The contender that is kube-scheduler's own default profile."""

NAMESPACE = "placement"


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

    def means(self) -> dict[str, float]:
        """Means over the looks at which pods were bound."""
        full = [row for row in self.rows if row["pods"] > 0]
        return {name: fmean(row[name] for row in full) for name in full[0]} if full else {}


def deployment(name: str, contender: str, rng: random.Random) -> dict[str, Any]:
    """One pod of .25 to 4 cores with latency limits, by the scheduler of the contender."""
    soft = round(rng.uniform(10, 50))
    annotations = {SOFT[0]: str(soft), HARD[0]: str(soft + round(rng.uniform(10, 40)))}
    body = testbed.pod(
        name,
        NAMESPACE,
        cpu=f"{rng.randint(250, 4000)}m",
        memory=f"{rng.randint(512, 8192)}Mi",
        scheduler="default-scheduler" if contender == DEFAULT else PROFILE,
    )
    if contender != DEFAULT:
        annotations[POLICY] = contender
    return objects.deployment(name, NAMESPACE, body["spec"], annotations=annotations)


class Testbed:
    """Nodes on a cluster, and observations of the pods on them."""

    def __init__(self, kube: KubeClient, count: int, seed: int) -> None:
        self.kube = kube
        nodes = testbed.nodes(count, seed)
        self.latency = {node["metadata"]["name"]: float(node["metadata"]["annotations"][LATENCY]) for node in nodes}
        self.cores = {node["metadata"]["name"]: float(node["status"]["allocatable"]["cpu"]) for node in nodes}
        kube.create(objects.namespace(NAMESPACE))
        # A run that was killed leaves its Deployments on the cluster.
        _clear(kube)
        kube.apply_all(nodes)

    def look(self, seconds: float) -> dict[str, float]:
        """Pods, nodes in use, pods on each of them, latency (ms), limits met and evenness, at this moment."""
        pods = self.kube.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        live = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        bound = [pod for pod in live if pod["spec"].get("nodeName")]
        nodes = [pod["spec"]["nodeName"] for pod in bound]
        used = dict.fromkeys(self.cores, 0.0)
        for pod, node in zip(bound, nodes, strict=True):
            text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            used[node] += float(text.removesuffix("m")) / 1000 if text.endswith("m") else float(text)
        met = [_met(pod, self.latency[node]) for pod, node in zip(bound, nodes, strict=True)]
        return {
            "seconds": round(seconds, 1),
            "pods": len(bound),
            "waiting": len(live) - len(bound),
            "nodes_in_use": len(set(nodes)),
            "pods_per_node": len(bound) / max(len(set(nodes)), 1),
            "latency_ms": fmean(self.latency[node] for node in nodes) if nodes else 0.0,
            "latency_met": fmean(met) if met else 0.0,
            "above_hard": sum(value == 0 for value in met),
            "uneven": pstdev(used[node] / cores for node, cores in self.cores.items()),
        }


def _met(pod: dict[str, Any], latency: float) -> float:
    annotations = pod["metadata"]["annotations"]
    if latency <= float(annotations[SOFT[0]]):
        return 1.0
    return 0.5 if latency <= float(annotations[HARD[0]]) else 0.0


def play(
    bed: Testbed, kubeconfig: Path, contender: str, plan: Plan, folder: Path, say: Callable[[dict[str, float]], None]
) -> Course:
    """Play the plan with one contender. Every contender gets the same Deployments. Raises DevClusterError."""
    folder.mkdir(parents=True, exist_ok=True)
    course, rng = Course(contender), random.Random(plan.seed)
    with ExitStack() as stack:
        if contender != DEFAULT:
            server = testbed.Suggestions(kubeconfig, folder, "--policy", contender, "--scheduler-name", PROFILE)
            stack.callback(server.stop)
            _wait(server.ready, "the suggestion server")
            stack.enter_context(testbed.second_scheduler(kubeconfig, server.url, folder))
        stack.callback(_clear, bed.kube)
        began = time.monotonic()

        def pause(seconds: float) -> None:
            end = time.monotonic() + seconds
            while True:
                course.rows.append(bed.look(time.monotonic() - began))
                say(course.rows[-1])
                left = end - time.monotonic()
                if left <= 0:
                    return
                time.sleep(min(left, 2.0))

        names: list[str] = []

        def come() -> None:
            names.append(f"d-{len(names):03d}")
            bed.kube.create(deployment(names[-1], contender, rng))

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
    _wait(lambda: not kube.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"], "the end of the pods")


def _wait(look: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            raise DevClusterError(f"{what} took more than {seconds:g} s; the logs are in the output folder")
        time.sleep(0.25)


def contenders(names: Sequence[str]) -> list[str]:
    """The default scheduler first, then the policies. Raises DevClusterError for a name that is none."""
    for name in names:
        if name != DEFAULT and name not in list(Policy):
            raise DevClusterError(f"{name}: none of {DEFAULT}, {', '.join(Policy)}")
    return sorted(set(names), key=lambda name: (name != DEFAULT, name))


def table(courses: Sequence[Course]) -> str:
    """Return the means as Markdown."""
    columns = ("nodes_in_use", "pods_per_node", "latency_ms", "latency_met", "above_hard", "uneven", "waiting")
    rows = [[course.contender, *(f"{course.means().get(name, 0):.2f}" for name in columns)] for course in courses]
    return markdown.table(("scheduler", *columns), rows)


def plain(plan: Plan, courses: Sequence[Course]) -> dict[str, Any]:
    """For a JSON file."""
    return {"plan": asdict(plan), "courses": [asdict(course) | {"means": course.means()} for course in courses]}
