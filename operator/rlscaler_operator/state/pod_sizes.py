"""Vertical sizes of a policy's pods: the recommended size, the size that new pods begin with, and failed resizes. Pure.

A recommendation keeps everything that is needed to recommend again. `admission/new-pods.yaml` reads the size of new
pods in the API server, from `status.newPods` of the policy (`ObservedObject.new_pods`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from rlscaler_core.api.new_pods import NewPodSize
from rlscaler_core.api.resources import PodResources, SizeRange
from rlscaler_core.api.status_memory import PodSizes, PodSizeStatus
from rlscaler_core.vertical import recommend as vertical
from rlscaler_core.vertical.quantities import readable, rounded, text
from rlscaler_core.vertical.recommend import Memory, Ranges, Usage
from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.kinds import is_other
from rlscaler_operator.cluster.selectors import Selector, as_texts
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.schedule import GrowingBackoff

RESOURCES = ("cpu", "memory")
"""Resources of which a pod has a size."""

FIRST_SECONDS = 60.0
"""The first pause, which the second failure begins; the first failure is followed by another attempt at once."""


class Sizing(NamedTuple):
    """A recommendation for the pods of some pools, with its inputs."""

    pools: tuple[str, ...]
    ranges: Ranges
    before: Memory
    usage: Usage
    after: Memory

    @property
    def sizes(self) -> dict[str, PodSize]:
        """The size that each pool's pods should have, as it is shown and written."""
        least = vertical.least_memory(self.ranges, self.after, self.usage.time)
        rows = zip(self.pools, self.after.size.tolist(), self.ranges.most.tolist(), least.tolist(), strict=True)
        return {
            pool: PodSize(readable("cpu", cpu, most[0]), readable("memory", memory, most[1]), enough)
            for pool, (cpu, memory), most, enough in rows
        }


def ranges_of(resources: Iterable[PodResources]) -> Ranges:
    """Return the ranges of pools, a row for each; NaN where a resource has none."""
    rows = [[_range(of_pool.cpu), _range(of_pool.memory)] for of_pool in resources]
    least, most, step = np.moveaxis(np.array(rows, np.float64), 2, 0)
    return Ranges(least, most, step)


def _range(size: SizeRange | None) -> tuple[float, float, float]:
    return (math.nan,) * 3 if size is None else (size.least, size.most, size.granularity)


def look(before: Memory, ranges: Ranges, pools: tuple[str, ...], usage: Usage) -> Sizing:
    """Recommend sizes for the pods of `pools` from their usage of now."""
    return Sizing(pools, ranges, before, usage, vertical.recommend(ranges, before, usage))


def status_of(sizing: Sizing, seen: str | None) -> PodSizes:
    """Return `status.podSizes`; `seen` is the memory as text, which is renewed from time to time."""
    shown = {pool: PodSizeStatus(**texts) for pool, size in sizing.sizes.items() if (texts := _texts(size))}
    return PodSizes(**shown, seen=seen)


def _texts(size: PodSize) -> dict[str, str]:
    return {name: text(name, getattr(size, name)) for name in RESOURCES if not math.isnan(getattr(size, name))}


@dataclass(slots=True)
class NewPods:
    """State of writing `status.newPods` of a policy."""

    problem: Problem | None = None
    """Why the status could not be written at the last attempt."""
    backoff: GrowingBackoff = field(default_factory=GrowingBackoff)
    """The pause after that."""
    pools: frozenset[str] = frozenset()
    """The pools that were to have a size then; a size for other pools is tried at once."""
    held: dict[str, GrowingBackoff] = field(default_factory=dict)
    """For each pool, the pause after the API server refused pods of the size."""


def new_pod_size(target: Key, selector: Selector | None, resources: PodResources, size: PodSize) -> NewPodSize | None:
    """Return the entry of `status.newPods` that gives new pods of a target its size.

    `selector` is that of a target that is no Deployment. Return None where no size is known, the pods are unknown, or
    the selector is longer than the status may be.
    """
    deployment, labels = _pods(target, selector)
    if deployment is None and labels is None:
        return None
    sizes = {
        key: text(resource, rounded(resource, amount))
        for key, resource, amount in (
            ("cpu", "cpu", size.cpu),
            ("memory", "memory", size.memory),
            ("least_memory", "memory", size.least_memory),
        )
        if not math.isnan(amount)
    }
    if math.isnan(size.memory):
        sizes.pop("least_memory", None)
    if not sizes:
        return None
    try:
        return NewPodSize(deployment=deployment, labels=labels, container=resources.container, **sizes)
    except ValidationError:
        return None


def is_of(size: Mapping[str, Any], target: Key, selector: Selector | None, resources: PodResources) -> bool:
    """Return whether an entry of `status.newPods` is of this target's pods and of the container that is sized."""
    of_entry = size.get("deployment"), size.get("labels"), size.get("container")
    return of_entry == (*_pods(target, selector), resources.container)


def _pods(target: Key, selector: Selector | None) -> tuple[str | None, list[str] | None]:
    """Return the Deployment that names the pods in an entry, or their labels; neither where the selector is unknown."""
    if not is_other(target[1]):
        return target[1], None
    return None, None if selector is None else as_texts(selector)


@dataclass(slots=True)
class Failure:
    """A failure that keeps coming back."""

    problem: Problem
    backoff: GrowingBackoff = field(default_factory=GrowingBackoff)


@dataclass(slots=True)
class Failures:
    """The failures of one pool's resizes. Times are in seconds by a clock that does not go backwards."""

    wish: str = ""
    """The size that failed, as text, since NaN is not equal to itself."""
    refused: Failure | None = None
    """The last refusal of a patch by the API server: the other pods of the pool would get the same."""
    taken_back: dict[str, Failure] = field(default_factory=dict)
    """By pod, the resize that its kubelet did not do."""

    def begin(self, wish: str) -> None:
        """Forget everything where another size is wished than before."""
        if wish != self.wish:
            self.wish, self.refused, self.taken_back = wish, None, {}

    def refuse(self, problem: Problem, now: float) -> None:
        """Note that the API server has refused a patch."""
        self.refused = _again(self.refused, problem, now)

    def take_back(self, pod: str, problem: Problem, now: float) -> None:
        """Note that a pod has got back the size that it runs with."""
        self.taken_back[pod] = _again(self.taken_back.get(pod), problem, now)

    def paused(self, now: float) -> bool:
        """Return True while no pod of the pool is tried."""
        return self.refused is not None and self.refused.backoff.waits(now)

    def paused_pods(self, now: float) -> set[str]:
        """Return the pods that are not tried at the moment."""
        return {pod for pod, failure in self.taken_back.items() if failure.backoff.waits(now)}

    def keep(self, unsettled: Collection[str]) -> None:
        """Forget the pods that are not among these: they have gone, or have the size that is wished."""
        self.taken_back = {pod: failure for pod, failure in self.taken_back.items() if pod in unsettled}

    def problems(self) -> list[Problem]:
        """Return the problems that keep the pool from the size that is wished, one for each reason."""
        failures = [*([self.refused] if self.refused else []), *self.taken_back.values()]
        return list({failure.problem.reason: failure.problem for failure in failures}.values())


def _again(before: Failure | None, problem: Problem, now: float) -> Failure:
    failure = Failure(problem, before.backoff if before else GrowingBackoff())
    failure.backoff.again(now, FIRST_SECONDS)
    return failure
