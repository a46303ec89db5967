"""The order in which the pods of a Deployment go: idle ones first, then those that empty a node, then a GPU.

A pod that works twice as much as another stays longer whatever it holds, so that nothing in flight is lost for a node.
Among pods that work about as much, whole nodes are emptied, those with the fewest pods first: that empties the most
nodes. What is left to choose empties shared GPUs in the same way, and then takes from the node that lacks the fewest
pods, so that a later choice, of this Deployment or of another one, empties it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.holders import UNKNOWN, Holders, Places

IDLE_BELOW = {"in_flight": 1.0, "gpu": 5.0, "cpu": 0.1}
"""What tells busy pods from idle ones, the best first: requests, percent of a GPU, cores. Below these a pod is idle."""

UNSEEN = True, math.inf
"""The last place: of a pod of which it is not known who else holds its node."""

Work = tuple[float, ...]
"""What a pod does, a number for each signal of `IDLE_BELOW`; infinite where it is not known."""


def work_of(pods: Iterable[Key], series: Iterable[Mapping[str, Any]]) -> dict[Key, Work]:
    """Return what each pod does by Prometheus's answer to `busy_pods`; pods of which nothing is known are left out."""
    values: dict[Key, dict[str, float]] = defaultdict(dict)
    for one in series:
        labels, value = one.get("metric", {}), float(one.get("value", (0, "nan"))[1])
        if not math.isnan(value):
            values[labels.get("namespace", ""), labels.get("pod", "")][labels.get("_", "")] = value
    return {pod: tuple(values[pod].get(name, math.inf) for name in IDLE_BELOW) for pod in pods if pod in values}


def first_to_go(work: Mapping[Key, Work], number: int, places: Places = UNKNOWN) -> set[Key]:
    """Return the `number` pods of a Deployment that should go, or all of `work` where it has fewer.

    `places` are the nodes and GPUs that they hold, each with all of its holders, other pods included.
    """
    gone: set[Key] = set()
    for equals in _by_work(work):
        room = number - len(gone)
        if room >= len(equals):
            gone |= equals
        elif room > 0:
            gone |= _among_equals({pod: work[pod] for pod in equals}, room, gone, places)
    return gone


def _by_work(work: Mapping[Key, Work]) -> Iterator[set[Key]]:
    """Yield the pods that work about as much as each other, the idlest first."""
    grades: dict[float, set[Key]] = defaultdict(set)
    for pod, grade in _grades(work).items():
        grades[grade].add(pod)
    yield from (grades[grade] for grade in sorted(grades))


def _grades(work: Mapping[Key, Work]) -> dict[Key, float]:
    """Grade each pod by the best signal that is known of any: 0 for idle, and one more for each doubling above it."""
    for index, idle in enumerate(IDLE_BELOW.values()):
        amounts = {pod: done[index] for pod, done in work.items()}
        if not all(map(math.isinf, amounts.values())):
            return {pod: _doublings(amount, idle) for pod, amount in amounts.items()}
    return dict.fromkeys(work, 0.0)


def _doublings(amount: float, idle: float) -> float:
    if math.isinf(amount):
        return math.inf
    # Doublings, because an exact order leaves nothing for nodes to decide, and a tolerance between pairs is no order
    # (a equals b, b equals c, and a is less than c).
    return 0.0 if amount < idle else 1.0 + math.floor(math.log2(amount / idle))


def _among_equals(work: Mapping[Key, Work], room: int, gone: set[Key], places: Places) -> set[Key]:
    """Choose `room` of the pods in `work`, after `gone` have been chosen from others."""
    chosen: set[Key] = set()
    for kind in places:
        for holders in _closing(work, kind, gone | chosen):
            if len(holders) <= room - len(chosen):
                chosen |= holders
    lacking = _lacking(work, places.nodes, gone | chosen)
    order = sorted(work.keys() - chosen, key=lambda pod: (lacking.get(pod, UNSEEN), work[pod], pod))
    return chosen | set(order[: room - len(chosen)])


def _lacking(work: Mapping[Key, Work], nodes: Sequence[Holders], gone: set[Key]) -> dict[Key, tuple[bool, float]]:
    """Return for each pod whether others hold its node too, and how many pods the node lacks to be empty."""
    left = (holders - gone for holders in nodes)
    return {pod: (not holders <= work.keys(), len(holders)) for holders in left for pod in holders}


def _closing(work: Mapping[Key, Work], kind: Sequence[Holders], gone: set[Key]) -> list[Holders]:
    """Return who still holds each place that pods in `work` alone can empty, the fewest and the idlest first."""
    left = (holders - gone for holders in kind)
    closing = [holders for holders in left if holders and holders <= work.keys()]
    return sorted(closing, key=lambda holders: (len(holders), max(work[pod] for pod in holders), sorted(holders)))
