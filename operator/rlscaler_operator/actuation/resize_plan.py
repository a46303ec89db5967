"""The plan of the next resizes of running pods: pure, from their specs and statuses.

A kubelet takes a resize up some time after the API server accepted it, or not at all, and reports in the pod's status:
`observedGeneration`, the container's `resources`, and the conditions PodResizePending (Deferred or Infeasible) and
PodResizeInProgress. A resize is over when these say so. The pods hold all memory between two plans.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from kubernetes.utils.quantity import parse_quantity

from rlscaler_core.vertical.quantities import rounded, text
from rlscaler_operator.cluster.bodies import is_over, is_ready, unix

AT_ONCE = 5
"""Pods of a pool that are being resized at a time, where their containers go on meanwhile."""

# A pod that asks for more than it has hides its real use from the scheduler and the quota, so this is not for ever.
PATIENCE_SECONDS = 300.0
"""Longest wait of a resize for room on its node, or for its container to need less, before it is taken back."""

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
RESTARTS = "RestartContainer"

Sizes = Mapping[str, float]
"""Cores of `cpu` and bytes of `memory`; a resource without a request is absent."""


class Stage(Enum):
    """The kubelet's progress with the size in a pod's spec."""

    SETTLED = "settled"
    """The container runs with the size."""
    UNDER_WAY = "under way"
    """The kubelet has not reported yet, or is resizing."""
    DEFERRED = "Deferred"
    """The node has no room at the moment."""
    INFEASIBLE = "Infeasible"
    """The node can never have room."""


@dataclass(frozen=True, slots=True)
class Sized:
    """The size of one running pod's container, by its spec and status."""

    name: str
    """The pod's name."""
    index: int
    """Place of the container in the pod's spec."""
    container: str
    requests: Sizes
    limits: Sizes
    """Requests and limits of the spec."""
    running: Mapping[str, Sizes]
    """`requests` and `limits` that the container runs with, by these names."""
    stage: Stage
    since: float
    """Unix seconds at which the stage began; 0 = not known."""
    message: str
    """The kubelet's message."""
    restarts: frozenset[str]
    """Resources whose change restarts the container."""
    ready: bool


def runs(body: Mapping[str, Any]) -> bool:
    """Return True where a pod runs and is not on its way out."""
    return not is_over(body) and (body.get("status") or {}).get("phase") == "Running"


def sized(body: Mapping[str, Any], container: str | None = None) -> Sized | None:
    """Return the size of a pod's container; `container` names it, None is the only one.

    Return None for a pod that does not run, and for one without that container.
    """
    status = body.get("status") or {}
    if not runs(body):
        return None
    matches = [(i, spec) for i, spec in enumerate(body["spec"]["containers"]) if container in (spec["name"], None)]
    if len(matches) != 1:
        return None
    index, spec = matches[0]
    status_of_container: Mapping[str, Any] = next(
        (c for c in status.get("containerStatuses") or () if c.get("name") == spec["name"]), {}
    )
    resources = spec.get("resources") or {}
    has = {kind: sizes((status_of_container.get("resources") or {}).get(kind)) for kind in ("requests", "limits")}
    requests, limits = sizes(resources.get("requests")), sizes(resources.get("limits"))
    seen = int(status.get("observedGeneration") or 0) >= int(body["metadata"].get("generation") or 0)
    stage, since, message = _stage(status, seen and has["requests"] == requests and has["limits"] == limits)
    policies = {entry.get("resourceName"): entry.get("restartPolicy") for entry in spec.get("resizePolicy") or ()}
    return Sized(
        name=body["metadata"]["name"],
        index=index,
        container=spec["name"],
        requests=requests,
        limits=limits,
        running=has,
        stage=stage,
        since=since,
        message=message,
        restarts=frozenset(name for name, policy in policies.items() if policy == RESTARTS),
        ready=is_ready(body),
    )


def sizes(amounts: Mapping[str, Any] | None) -> dict[str, float]:
    """Return CPU and memory of the requests or limits of a container; an absent resource stays absent."""
    there = amounts or {}
    return {name: float(parse_quantity(there[name])) for name in ("cpu", "memory") if name in there}


def _stage(status: Mapping[str, Any], runs: bool) -> tuple[Stage, float, str]:
    conditions = {c.get("type"): c for c in status.get("conditions") or () if c.get("status") == "True"}
    if pending := conditions.get(PENDING):
        infeasible = pending.get("reason") == Stage.INFEASIBLE.value
        stage = Stage.INFEASIBLE if infeasible else Stage.DEFERRED
        return stage, unix(pending.get("lastTransitionTime")), str(pending.get("message") or "")
    if progress := conditions.get(IN_PROGRESS):
        return Stage.UNDER_WAY, unix(progress.get("lastTransitionTime")), str(progress.get("message") or "")
    return (Stage.SETTLED if runs else Stage.UNDER_WAY), 0.0, ""


class Step(NamedTuple):
    """One patch of a pod."""

    sized: Sized
    requests: Sizes
    limits: Sizes
    """The wanted requests and limits."""
    back: bool = False
    """Whether it takes back a resize that the kubelet cannot do."""

    def patch(self) -> list[dict[str, Any]]:
        """Return the JSON patch of the pod's `resize` subresource; it fails where the container is another one."""
        place = f"/spec/containers/{self.sized.index}"
        changes = [
            {"op": "replace", "path": f"{place}/resources/{kind}/{name}", "value": text(name, value)}
            for kind, wanted, now in (
                ("requests", self.requests, self.sized.requests),
                ("limits", self.limits, self.sized.limits),
            )
            for name, value in wanted.items()
            if value != now[name]
        ]
        return [{"op": "test", "path": f"{place}/name", "value": self.sized.container}, *changes]


class Stuck(NamedTuple):
    """A resize that a kubelet does not do."""

    pod: str
    reason: str
    """`Deferred`, `Infeasible`, or `InProgress` where it began and does not come to an end."""
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The next steps for the pods of one pool."""

    steps: list[Step] = field(default_factory=list)
    stuck: list[Stuck] = field(default_factory=list)
    unsettled: frozenset[str] = frozenset()
    """Pods that do not run with the wished size."""
    without_request: int = 0
    """Number of pods whose container has no request of a wished resource: they are left alone."""


def plan(
    pods: Iterable[Sized],
    wish: Sizes,
    now: float,
    least_memory: float = math.nan,
    refused: Collection[str] = (),
    others_ready: bool = True,
) -> Plan:
    """Return the next patches for the running pods of a pool.

    `wish` has the cores and bytes of each container's requests; NaN is not controlled. Memory is not lowered below
    `least_memory` bytes, and not at all where that is NaN. Pods in `refused` are not tried again. `now` is in unix
    seconds. `others_ready` is False where the pool has pods besides these, which do not run yet.

    Limits move in the ratio of the requests, so that the pod's QoS class stays. No more than AT_ONCE pods are resized
    at a time; where a container has to be restarted, one at a time and only while all others are ready.
    """
    every = sorted(pods, key=lambda pod: pod.name)
    controlled = {name for name, value in wish.items() if not math.isnan(value)}
    stuck = {pod.name for pod in every if _is_stuck(pod, now)}
    changes = [step for pod in every if (step := _step(pod, wish, least_memory)) is not None]
    unlike = {step.sized.name for step in changes} | {pod.name for pod in every if pod.stage is not Stage.SETTLED}
    without = sum(1 for pod in every if controlled - set(pod.requests))
    result = Plan(unsettled=frozenset(unlike), without_request=without)
    for pod in every:
        if pod.name in stuck:
            reason = pod.stage.value if pod.stage in (Stage.DEFERRED, Stage.INFEASIBLE) else "InProgress"
            result.stuck.append(Stuck(pod.name, reason, pod.message))
            if back := _back(pod):
                result.steps.append(back)
    # Resizes under way count against the pace; a restart waits until all pods are ready and settled.
    under_way = sum(1 for pod in every if pod.stage is Stage.UNDER_WAY)
    free = [step for step in changes if step.sized.stage is Stage.SETTLED and step.sized.name not in refused]
    result.steps.extend(_paced(free, every, AT_ONCE - under_way, others_ready))
    return result


def _is_stuck(pod: Sized, now: float) -> bool:
    if pod.stage is Stage.INFEASIBLE:
        return True
    return pod.stage is not Stage.SETTLED and pod.since > 0 and now - pod.since > PATIENCE_SECONDS


def _back(pod: Sized) -> Step | None:
    """Return the step that takes the spec back to the running size; None where the status has no size."""
    requests = {name: pod.running["requests"].get(name, value) for name, value in pod.requests.items()}
    limits = {name: pod.running["limits"].get(name, value) for name, value in pod.limits.items()}
    step = Step(pod, requests, limits, back=True)
    return step if len(step.patch()) > 1 else None


def _step(pod: Sized, wish: Sizes, least_memory: float) -> Step | None:
    """Return the step that brings a pod to the wished size; None where it has it, or must not have it."""
    requests = dict(pod.requests)
    for name, value in wish.items():
        if name in requests and not math.isnan(value):
            requests[name] = rounded(name, value)
    if "memory" in requests and requests["memory"] < pod.requests["memory"]:
        least = math.inf if math.isnan(least_memory) else rounded("memory", least_memory)
        # Lowering memory below what the container needs would kill it: never below the least, and never a raise.
        requests["memory"] = min(max(requests["memory"], least), pod.requests["memory"])
    limits = {
        name: _limit(name, value, pod.requests.get(name), requests.get(name)) for name, value in pod.limits.items()
    }
    step = Step(pod, requests, limits)
    return step if len(step.patch()) > 1 else None


def _limit(name: str, limit: float, before: float | None, after: float | None) -> float:
    if before is None or after is None or before == after or before <= 0:
        return limit
    # A limit equal to the request stays equal (QoS Guaranteed); else it keeps its ratio.
    return after if limit == before else rounded(name, limit * after / before)


def _paced(steps: Sequence[Step], every: Sequence[Sized], room: int, others_ready: bool) -> list[Step]:
    """Return the steps that may be taken now; those without a restart go first."""
    calm = [step for step in steps if not _restarts(step)][: max(room, 0)]
    if calm:
        return calm
    quiet = others_ready and all(pod.ready and pod.stage is Stage.SETTLED for pod in every)
    return list(steps[:1]) if quiet else []


def _restarts(step: Step) -> bool:
    now, wanted = step.sized, step
    moved = {name for name in now.requests if now.requests[name] != wanted.requests[name]}
    return bool(moved & now.restarts)
