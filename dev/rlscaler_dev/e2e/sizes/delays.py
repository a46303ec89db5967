"""How long a resize takes from the patch of a pod's spec to the container's cgroup. Pure."""

from __future__ import annotations

import math

from kubernetes.utils.quantity import parse_quantity

from rlscaler_dev.cluster.kube import Json
from rlscaler_dev.cluster.realnode.container_cgroup import Amounts
from rlscaler_dev.e2e.sizes.observe import Trail

LEAST_CORES = 0.01
"""What a kubelet writes at least of a limit."""
PAGE_BYTES = 4096
"""The kernel rounds a limit down to whole pages."""


def delay_seconds(trail: Trail) -> float | None:
    """Give the seconds from when the last change of the spec was seen until the cgroup had its limits.

    None where the cgroup does not have them. A cgroup may have been seen a moment before the watch told of its cause.
    """
    changed_at, wanted = trail.asked[-1]
    if not trail.given or not holds(trail.given[-1][1], wanted):
        return None
    since = changed_at
    for moment, amounts in reversed(trail.given):
        if not holds(amounts, wanted):
            break
        since = moment
    return since - changed_at


def holds(amounts: Amounts, resources: Json) -> bool:
    """Whether a cgroup has the limits of a container's `resources`."""
    limits = {name: float(parse_quantity(value)) for name, value in (resources.get("limits") or {}).items()}
    cores = max(limits["cpu"], LEAST_CORES) if "cpu" in limits else math.inf
    return _near(amounts.cores, cores, LEAST_CORES / 2) and _near(
        amounts.memory, limits.get("memory", math.inf), PAGE_BYTES
    )


def _near(value: float, wanted: float, by: float) -> bool:
    return value == wanted or abs(value - wanted) < by
