"""Resizing the running pods of a pool in place, through the `resize` subresource of pods.

Each round plans anew from the pods' specs and statuses, so that an operator that takes over goes on where another one
ended. A resize that the API server refuses, or a kubelet cannot do, is named and tried again after pauses that grow.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import Literal, NamedTuple

from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.actuation.resize_plan import Plan, Sized, Step, Stuck, plan, runs, sized
from rlscaler_operator.cluster.bodies import Key, is_over
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.kube import object_path
from rlscaler_operator.cluster.lease import Lease
from rlscaler_operator.cluster.sized_pods import SizedPods
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.pod_sizes import Failures

log = logging.getLogger("rlscaler.resize")

MISSING = 404
REFUSED = (403, MISSING, 422)
"""HTTP statuses of patches that the next attempt would get as well, unless a pod has gone."""

REMEDIES = {
    "exceeded quota": ("ResizeOverQuota", "raise the ResourceQuota, or lower the largest size"),
    "cannot patch resource": ("ResizeForbidden", "grant it: rbac-optional.yaml, or operator.resize of the chart"),
    "usage per": ("ResizeOutOfLimitRange", "change the LimitRange, or the range of sizes"),
    "limit to request ratio": ("ResizeOutOfLimitRange", "change the LimitRange, or the pods' limits"),
}
"""Part of the API server's message in a refusal, and the reason and the remedy that follow from it."""

NODE_TOO_SMALL = "node didn't have enough allocatable resources"
"""Its message where the node of a pod could not hold the size if it were empty, so that its kubelet is not asked."""


ResizeOutcome = Literal["Taken", "Refused", "Failed", "TakenBack"]
"""Result of one patch."""


class Resized(NamedTuple):
    """Result of one round for the pods of a pool."""

    patched: tuple[str, ...] = ()
    """Pods whose patches the API server took; whether their kubelets do it is seen in a later round."""
    unsettled: int = 0
    """Pods that do not run with the wished size so far, those included that were patched."""
    outcomes: Mapping[ResizeOutcome, int] = MappingProxyType({})
    """Number of patches by result."""
    asked: PodSize = PodSize()
    """Mean requests of the running pods; NaN where no pod runs, or requests a resource."""
    proven: bool = False
    """Whether some pod runs with the wished size: the API server and a kubelet have taken it."""
    problems: tuple[Problem, ...] = ()
    """Problems that keep pods from the wished size."""


class Resizer:
    """Patches pods. Its memory of a pool is in the `Failures` that it is given."""

    def __init__(
        self,
        limiter: ConcurrencyLimiter,
        pods: SizedPods,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` returns unix seconds, as kubelets write them."""
        self._limiter, self._pods, self._clock = limiter, pods, clock

    async def resize(
        self, lease: Lease, target: Key, size: PodSize, container: str | None, failures: Failures
    ) -> Resized:
        """Bring the pods of a target nearer to a size: a few at a time, after the resizes under way have ended.

        `container` names the container of each pod that is resized; None is its only one. Never raises for an answer of
        the API server. Call it only where the policy may act.
        """
        now, bodies = self._clock(), [body for body in self._pods.of(target) if not is_over(body)]
        pods = [pod for body in bodies if (pod := sized(body, container)) is not None]
        failures.begin(f"{container}: {size.cpu} cores, {size.memory} bytes")
        running = len(pods) == len(bodies)
        wish = {"cpu": size.cpu, "memory": size.memory}
        planned = plan(pods, wish, now, size.least_memory, failures.paused_pods(now), running)
        failures.keep(planned.unsettled)
        # After a refusal the other pods of the pool would be refused as well.
        steps = [] if failures.paused(now) else planned.steps
        answers = await asyncio.gather(*(self._write(lease, target, step) for step in steps))
        self._note(planned, dict(zip((step.sized.name for step in steps), answers, strict=True)), failures, now)
        patched = tuple(step.sized.name for step, answer in zip(steps, answers, strict=True) if answer is None)
        unnamed = len(pods) < sum(1 for body in bodies if runs(body))
        return Resized(
            patched=patched,
            unsettled=len(planned.unsettled),
            outcomes=Counter(map(_outcome, steps, answers)),
            asked=_mean(pods),
            proven=any(pod.name not in planned.unsettled for pod in pods),
            problems=(*failures.problems(), *_left_alone(planned, unnamed)),
        )

    async def _write(self, lease: Lease, target: Key, step: Step) -> Exception | None:
        """Send one patch; return the error, None where it was taken."""
        pod = step.sized.name
        path = object_path("v1", "pods", target[0], pod, "resize")
        try:
            async with self._limiter.slot(Priority.SCALE):
                answer = await lease.patch(path, step.patch())
        except (KubeError, LeaseLostError) as error:
            log.warning("Pod %s/%s was not resized: %s", target[0], pod, error)
            if isinstance(error, KubeError) and _is_gone(pod, error):
                self._pods.drop(target, pod)
            return error
        self._pods.put(target, answer)
        return None

    def _note(self, planned: Plan, answers: dict[str, Exception | None], failures: Failures, now: float) -> None:
        """Remember refusals of the API server, and resizes that were taken back from kubelets."""
        refusals = [(pod, error) for pod, error in answers.items() if _refuses(pod, error)]
        of_all = []
        for pod, error in refusals:
            if NODE_TOO_SMALL in str(error):
                failures.take_back(pod, _too_large(pod, error), now)
            else:
                of_all.append((pod, error))
        # One pod's node may be too small; any other refusal holds for all pods of the pool.
        if of_all:
            failures.refuse(_refusal(*of_all[0]), now)
        elif None in answers.values():
            failures.refused = None
        stuck_pods = {stuck.pod: stuck for stuck in planned.stuck}
        for step in planned.steps:
            pod = step.sized.name
            if step.back and pod in answers and answers[pod] is None:
                failures.take_back(pod, _not_done(stuck_pods[pod]), now)


def _outcome(step: Step, answer: Exception | None) -> ResizeOutcome:
    if answer is None:
        return "TakenBack" if step.back else "Taken"
    return "Refused" if _refuses(step.sized.name, answer) else "Failed"


def _mean(pods: Sequence[Sized]) -> PodSize:
    requests = {name: [pod.requests[name] for pod in pods if name in pod.requests] for name in ("cpu", "memory")}
    return PodSize(**{name: fmean(values) for name, values in requests.items() if values})


def _is_gone(pod: str, error: KubeError) -> bool:
    return error.status == MISSING and f'"{pod}"' in str(error)


def _refuses(pod: str, error: Exception | None) -> bool:
    """Return whether the next attempt would get the same answer."""
    return isinstance(error, KubeError) and error.status in REFUSED and not _is_gone(pod, error)


def _refusal(pod: str, error: Exception | None) -> Problem:
    text = str(error)
    reason, remedy = next(
        (reason_and_remedy for part, reason_and_remedy in REMEDIES.items() if part in text),
        ("ResizeRefused", "correct what it names, or use mode Recommend"),
    )
    return Problem(reason, f"Pod {pod} may not be resized: {text}; {remedy}")


def _too_large(pod: str, error: Exception | None) -> Problem:
    text = f"Pod {pod} keeps its size: {error}; lower the largest size, or run such pods on larger nodes"
    return Problem("ResizeInfeasible", text)


def _not_done(stuck: Stuck) -> Problem:
    why = stuck.message or {"Deferred": "its node has no room"}.get(stuck.reason, "its kubelet does not come to an end")
    text = (
        f"Pod {stuck.pod} got back the size that it runs with: {why}; make room on its node, or lower the largest size"
    )
    return Problem(f"Resize{stuck.reason}", text)


def _left_alone(planned: Plan, unnamed: bool) -> list[Problem]:
    """Return problems of pods that cannot be resized; `unnamed`: some have no such container."""
    left = []
    if planned.without_request:
        text = "pods ask for no CPU or no memory, and a request cannot be added while they run: set it in the template"
        left.append(Problem("ResizeWithoutRequest", text))
    if unnamed:
        text = "pods have several containers, or none of the name given: correct resources.container in spec.targets"
        left.append(Problem("ResizeContainerUnknown", text))
    return left
