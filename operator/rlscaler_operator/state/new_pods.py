"""The ConfigMap by which new pods of a target get their size, and what is remembered of it. Pure.

`admission/new-pods.yaml` reads it in the API server, and says what each key of its data means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from rlscaler_core.api import GROUP, KIND, VERSION
from rlscaler_core.api.resources import PodResources
from rlscaler_core.vertical.quantities import rounded, text
from rlscaler_core.vertical.size import PodSize
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.events import Reference
from rlscaler_operator.cluster.kinds import is_other
from rlscaler_operator.cluster.selectors import Selector, as_lines
from rlscaler_operator.state.backoff import GrowingBackoff
from rlscaler_operator.state.findings import Problem

LABEL = "rlscaler.io/pod-size"
"""Label, with the value `true`, of the ConfigMaps that size new pods."""

Json = dict[str, Any]


@dataclass(slots=True)
class NewPods:
    """What is known of the ConfigMap of one pool."""

    there: bool | None = None
    """None = not known: another process may have written it."""
    body: Json | None = None
    """As it was last written by this process."""
    at: float = -math.inf
    """When that was, in monotonic seconds."""
    problem: Problem | None = None
    """Why it could not be written or removed when that was last tried."""
    backoff: GrowingBackoff = field(default_factory=GrowingBackoff)
    """The pause after something was refused."""

    def wrote(self, body: Json, now: float) -> None:
        """Note that it was written."""
        self.there, self.body, self.at, self.problem = True, body, now, None

    def doubted(self) -> None:
        """Note that it may have been written although no answer said so."""
        self.there, self.body = None, None

    def removed(self) -> None:
        """Note that it is not there any more."""
        self.there, self.body, self.problem = False, None, None


def name_of(policy: Reference, pool: str) -> str:
    """Return the name of a pool's ConfigMap; a policy that was made again has another one."""
    return f"rlscaler-{policy.uid}-{pool}"


def config_map(
    policy: Reference, pool: str, target: Key, selector: Selector | None, resources: PodResources, size: PodSize
) -> Json | None:
    """Return the ConfigMap that gives new pods of a target its size; it goes with its policy.

    `selector` is that of a target that is no Deployment. None where no size is known, or the pods are not.
    """
    pods = {"deployment": target[1]}
    if is_other(target[1]):
        if selector is None:
            return None
        pods = {"labels": as_lines(selector)}
    sizes = {
        key: text(resource, rounded(resource, amount))
        for key, resource, amount in (
            ("cpu", "cpu", size.cpu),
            ("memory", "memory", size.memory),
            ("leastMemory", "memory", size.least_memory),
        )
        if not math.isnan(amount)
    }
    if math.isnan(size.memory):
        sizes.pop("leastMemory", None)
    if not sizes:
        return None
    container = {} if resources.container is None else {"container": resources.container}
    owner = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": policy.name, "uid": policy.uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name_of(policy, pool),
            "namespace": policy.namespace,
            "labels": {LABEL: "true"},
            "ownerReferences": [owner],
        },
        "data": pods | container | sizes,
    }
