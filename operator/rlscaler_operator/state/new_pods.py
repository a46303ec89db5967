"""How large new pods of a target begin, as the policy's status says it, and what is remembered of writing that. Pure.

`admission/new-pods.yaml` reads it in the API server. What is in force is in the object (`ObservedObject.new_pods`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from rlscaler_core.api.new_pods import NewPodSize
from rlscaler_core.api.resources import PodResources
from rlscaler_core.vertical.quantities import rounded, text
from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.kinds import is_other
from rlscaler_operator.cluster.selectors import Selector, as_texts
from rlscaler_operator.state.backoff import GrowingBackoff
from rlscaler_operator.state.findings import Problem


@dataclass(slots=True)
class NewPods:
    """What is remembered of a policy's new pods."""

    problem: Problem | None = None
    """Why the status could not be written when that was last tried."""
    backoff: GrowingBackoff = field(default_factory=GrowingBackoff)
    """The pause after that."""
    pools: frozenset[str] = frozenset()
    """The pools that were to have a size then; where these are others it is tried at once."""
    held: dict[str, GrowingBackoff] = field(default_factory=dict)
    """For each pool, the pause after the API server refused pods of the size."""


def new_pod_size(target: Key, selector: Selector | None, resources: PodResources, size: PodSize) -> NewPodSize | None:
    """Return what gives new pods of a target its size.

    `selector` is that of a target that is no Deployment. None where no size is known, or the pods are not, or the
    selector is longer than the status may be.
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
    """Is a size of `status.newPods` one of this target's pods and of the container that is sized?"""
    found = size.get("deployment"), size.get("labels"), size.get("container")
    return found == (*_pods(target, selector), resources.container)


def _pods(target: Key, selector: Selector | None) -> tuple[str | None, list[str] | None]:
    """Return what a size says of its pods: the Deployment, or the labels; neither where the selector is not known."""
    if not is_other(target[1]):
        return target[1], None
    return None, None if selector is None else as_texts(selector)
