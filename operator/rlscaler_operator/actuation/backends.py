"""The backends of an HTTPRoute: the backends of a policy's pools, their weights, and the patch that sets them. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from rlscaler_operator.state.traffic import UNKNOWN, Shares

Weights = tuple[int, int]
"""Shares of the GPU and the CPU backend, per mille."""

FINE_WEIGHT = 100
"""Weight that the two backends need together, beside others, to be split to a percent."""

GATEWAY_SERVICE = ("", "Service")
"""API group and kind of a backend that is a Service, the defaults of a backendRef."""


class AmbiguousBackendError(Exception):
    """A rule names the Service of a pool more than once, so that it is not clear which of the two to set."""


class Split(NamedTuple):
    """A rule that sends requests to the Service of a pool, or to both."""

    rule: int
    refs: tuple[int | None, int | None]
    """Positions of the GPU and the CPU backend in the rule's `backendRefs`; None for one that it does not name."""
    weights: Weights
    """Their weights; 0 for one that the rule does not name."""
    others: int
    """Weights of all other backends of the rule together."""

    @property
    def both(self) -> bool:
        return None not in self.refs

    @property
    def coarse(self) -> bool:
        """Return whether other backends leave the two too little weight to be split well."""
        return self.both and self.others > 0 and 0 < sum(self.weights) < FINE_WEIGHT

    def wanted(self, weights: Weights) -> Weights:
        """Return the weights that split the rule as `weights` do.

        Beside other backends the sum of the two stays, so that no share but theirs changes. A pool that gets any of
        `weights` then gets at least 1, where there is enough for both.
        """
        whole = sum(self.weights)
        # A rule whose weights are 0 was closed on purpose: it answers 500 until they are set by hand again.
        if not whole or not sum(weights):
            return self.weights
        if not self.others:
            return weights
        # Round the GPU share of the whole weight; each pool with any share keeps at least 1, where there is enough for
        # both.
        gpu = round(whole * weights[0] / sum(weights))
        gpu = min(max(gpu, int(weights[0] > 0)), whole - int(weights[1] > 0)) if whole > 1 else gpu
        return gpu, whole - gpu


def is_service(ref: Mapping[str, Any], namespace: str, name: str) -> bool:
    """Return True where a backendRef of a route in `namespace` names that Service there."""
    kind = (ref.get("group", ""), ref.get("kind", "Service"))
    return kind == GATEWAY_SERVICE and ref.get("namespace", namespace) == namespace and ref.get("name") == name


def find_splits(route: Mapping[str, Any], namespace: str, backends: tuple[str, str]) -> list[Split]:
    """Return the rules that name a backend of the two. Raises AmbiguousBackendError.

    A backendRef is identified by group, kind, namespace, name and port: two refs of one Service with different ports,
    or with filters of their own, are two backends, and nothing tells which of them stands for the pool.
    """
    splits = []
    for i, rule in enumerate(route.get("spec", {}).get("rules") or ()):
        refs = rule.get("backendRefs") or ()
        at = [[j for j, ref in enumerate(refs) if is_service(ref, namespace, name)] for name in backends]
        for name, positions in zip(backends, at, strict=True):
            if len(positions) > 1:
                ports = ", ".join(str(refs[j].get("port", "none")) for j in positions)
                raise AmbiguousBackendError(
                    f"rule {i} names Service {name} {len(positions)} times (ports {ports}): leave one backendRef of it"
                )
        gpu, cpu = (positions[0] if positions else None for positions in at)
        if gpu is None and cpu is None:
            continue
        weights = (_weight(refs, gpu), _weight(refs, cpu))
        splits.append(Split(i, (gpu, cpu), weights, sum(int(ref.get("weight", 1)) for ref in refs) - sum(weights)))
    return splits


def _weight(refs: Any, position: int | None) -> int:
    return 0 if position is None else int(refs[position].get("weight", 1))


def shares_of(splits: list[Split]) -> Shares:
    """Return the largest share of each pool in the traffic that any rule sends to the two.

    A pool that no rule names gets its requests in a way that is not seen here: its unknown share counts as 1.
    """
    shares = list(UNKNOWN)
    for pool in (0, 1):
        named = [split for split in splits if split.refs[pool] is not None]
        if named:
            shares[pool] = max(s.weights[pool] / sum(s.weights) if sum(s.weights) else 0.0 for s in named)
    return shares[0], shares[1]


def current_weights(splits: list[Split]) -> Weights | None:
    """Return the weights of the first rule that splits between the two and is open; None where there is none."""
    return next((split.weights for split in splits if split.both and any(split.weights)), None)


def route_patch(route: Mapping[str, Any], splits: list[Split], weights: Weights) -> list[dict[str, Any]]:
    """A JSON patch that sets the weights where the rule's backends still are as read; empty where they are right.

    The whole list of a rule's backends is compared: another order, another port or another weight beside the two would
    make the patch wrong.
    """
    patch: list[dict[str, Any]] = []
    for split in splits:
        wanted = split.wanted(weights)
        if not split.both or wanted == split.weights:
            continue
        path, listed = f"/spec/rules/{split.rule}/backendRefs", route["spec"]["rules"][split.rule]["backendRefs"]
        patch.append({"op": "test", "path": path, "value": listed})
        for j, before, weight in zip(split.refs, split.weights, wanted, strict=True):
            if before != weight:
                patch.append({"op": "add", "path": f"{path}/{j}/weight", "value": weight})
    return patch


def same_rules(route: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two states of a route have the same backends in every rule."""
    mine, others = (
        [list(rule.get("backendRefs") or ()) for rule in each.get("spec", {}).get("rules") or ()]
        for each in (route, other)
    )
    return mine == others


def acknowledged(route: Mapping[str, Any], namespace: str) -> float:
    """The newest generation of a route that every Gateway it names has accepted; infinite where none reports any.

    A Gateway that says that the route is not accepted, or not programmed, has acknowledged nothing (-1).
    """
    named = [_parent(ref, namespace) for ref in route.get("spec", {}).get("parentRefs") or ()]
    newest = math.inf
    for parent in route.get("status", {}).get("parents") or ():
        conditions = {c.get("type"): c for c in parent.get("conditions") or ()}
        about = [conditions[name] for name in ("Accepted", "Programmed") if name in conditions]
        if named and _parent(parent.get("parentRef") or {}, namespace) not in named:
            continue
        for condition in about:
            if condition.get("status") == "False":
                return -1
            if condition.get("observedGeneration") is not None:
                newest = min(newest, int(condition["observedGeneration"]))
    return newest


def _parent(ref: Mapping[str, Any], namespace: str) -> tuple[Any, ...]:
    return (
        ref.get("group", "gateway.networking.k8s.io"),
        ref.get("kind", "Gateway"),
        ref.get("namespace", namespace),
        ref.get("name"),
        ref.get("sectionName"),
        ref.get("port"),
    )
