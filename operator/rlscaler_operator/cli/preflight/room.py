"""Preflight of the room for replicas: the namespace's quotas and the nodes that have the pods' GPUs. Mostly pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from rlscaler_core.api.targets import Target
from rlscaler_operator.cli.checks import Check
from rlscaler_operator.cli.preflight.look import Look
from rlscaler_operator.cluster.bodies import Key, parse_deployment, quantity, request_of
from rlscaler_operator.cluster.kinds import for_kubectl, titled
from rlscaler_operator.cluster.kube import Json, Kube, listed
from rlscaler_operator.exceptions import OperatorError

BLOCKING = ("NoSchedule", "NoExecute")
"""Effects of a taint that keep a pod without the toleration away."""


async def check_room(kube: Kube, look: Look) -> list[Check]:
    """Check for room for maxReplicas of all pools. Quotas or nodes that may not be read are reported as not checked."""
    bodies: dict[str, Json] = {}
    for pool, key in look.policy.facts.targets:
        if key in look.context.engine.cache.deployments:
            bodies[pool] = await kube.get(look.context.engine.cache.kinds.path(key))
    missing = [check_pods(key, bodies[pool]) for pool, key in look.policy.facts.targets if pool in bodies]
    return [*missing, *await _quotas(kube, look, bodies), *await _nodes(kube, look, bodies)]


def check_pods(key: Key, body: Json) -> Check:
    """Compare the replicas that a target asks for with the pods that exist, and those with the ready ones."""
    desired, pods = int(body["spec"].get("replicas", 1)), existing(body)
    ready = int((body.get("status") or {}).get("readyReplicas") or 0)
    title = f"{titled(key[1])} has a pod for each of the {desired} replicas that it asks for"
    if pods < desired:
        refused = parse_deployment(body).refused
        words = refused or f"see kubectl -n {key[0]} describe {for_kubectl(key[1])}"
        return Check(title, f"{desired - pods} have none: {words}", f"pods-{key[1]}", stops=bool(refused))
    waits = f"{pods - ready} of them are not ready: see kubectl -n {key[0]} get pods" if ready < desired else ""
    return Check(title, waits, f"pods-{key[1]}", stops=False)


async def _quotas(kube: Kube, look: Look, bodies: Mapping[str, Json]) -> list[Check]:
    title = f"the quotas of {look.policy.key[0]} leave room for maxReplicas"
    try:
        quotas = [quota async for quota in listed(kube, [look.policy.key[0]], "v1", "resourcequotas")]
    except OperatorError as error:
        return [Check(title, f"not checked: {error}", "quota", stops=False)]
    if not quotas:
        return [Check(f"no ResourceQuota limits {look.policy.key[0]}", about="quota")]
    wanted = [(_target(look, pool), body) for pool, body in bodies.items()]
    troubles = [text for quota in quotas for text in short_of(quota, wanted)]
    return [Check(title, "; ".join(troubles), "quota")]


def short_of(quota: Json, wanted: Sequence[tuple[Target, Json]]) -> Iterator[str]:
    """Yield a text for each resource of a quota that is too small for `maxReplicas` of all targets."""
    status = quota.get("status") or {}
    hard, used = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}, status.get("used") or {}
    for resource, text in hard.items():
        # The pods that exist are in `used` already; replicas that were refused have none.
        more = sum(max(0, target.max_replicas - existing(body)) * _of_pod(body, resource) for target, body in wanted)
        left = float(parse_quantity(text) - parse_quantity(used.get(resource, "0")))
        if more > left:
            yield (
                f"ResourceQuota {quota['metadata']['name']}: {resource} has {left:g} left of {text} and maxReplicas "
                f"need {more:g} more: raise it, or lower spec.targets.*.maxReplicas"
            )


def _of_pod(body: Json, resource: str) -> float:
    """Return the amount of a quota's resource that one pod takes: of `pods`, `requests.cpu`, `limits.memory`, ..."""
    if resource in ("pods", "count/pods"):
        return 1.0
    name = resource.removeprefix("limits.").removeprefix("requests.")
    containers = _pod(body).get("containers") or ()
    if resource.startswith("limits."):
        return sum(quantity(((c.get("resources") or {}).get("limits") or {}).get(name)) for c in containers)
    return sum(request_of(container, name) for container in containers)


async def _nodes(kube: Kube, look: Look, bodies: Mapping[str, Json]) -> list[Check]:
    asking = {pool: devices(body) for pool, body in bodies.items() if devices(body)}
    if not asking:
        return []
    try:
        nodes = [node async for node in listed(kube, [], "v1", "nodes")]
    except OperatorError as error:
        return [Check("nodes have the GPUs that the pods ask for", f"not checked: {error}", "gpu-nodes", stops=False)]
    return [
        _places(look, pool, resource, each, nodes, bodies[pool])
        for pool, wanted in asking.items()
        for resource, each in wanted.items()
    ]


def _places(look: Look, pool: str, resource: str, each: float, nodes: Sequence[Json], body: Json) -> Check:
    """Compare the places that nodes have for pods of a pool, by one device resource, with maxReplicas."""
    target = _target(look, pool)
    fitting = [node for node in nodes if fits(node, _pod(body))]
    there = (str((node.get("status") or {}).get("allocatable", {}).get(resource, "0")) for node in fitting)
    places = sum(int(float(parse_quantity(number)) // each) for number in there)
    title = f"{len(fitting)} nodes can take {places} pods of {target.object_name} ({each:g} {resource} each)"
    trouble, stops = "", False
    if not places:
        trouble = (
            f"no node that the pods may run on has {resource} allocatable: is the device plugin running, and do the "
            "pods tolerate the taints of the GPU nodes?"
        )
        # Pods that are ready run somewhere: then the labels or taints are only read wrongly here.
        stops = not body.get("status", {}).get("readyReplicas")
    elif places < target.max_replicas:
        trouble = (
            f"spec.targets.{pool}.maxReplicas is {target.max_replicas}: lower it, unless nodes are added when pods wait"
        )
    return Check(title, trouble, f"gpu-nodes-{pool}", stops)


def devices(body: Json) -> dict[str, float]:
    """Return the devices that one pod of a Deployment asks for, such as `nvidia.com/gpu`: extended resources."""
    names = {
        name
        for container in _pod(body).get("containers") or ()
        for name in ((container.get("resources") or {}).get("limits") or {})
        if "/" in name and not name.startswith(("hugepages-", "kubernetes.io/"))
    }
    return {name: _of_pod(body, f"requests.{name}") for name in sorted(names)}


def fits(node: Json, pod: Json) -> bool:
    """Return True where nodeSelector and taints let the pod run on the node. Affinities are ignored."""
    labels = node["metadata"].get("labels") or {}
    spec = node.get("spec") or {}
    if spec.get("unschedulable") or any(labels.get(k) != v for k, v in (pod.get("nodeSelector") or {}).items()):
        return False
    tolerations = pod.get("tolerations") or ()
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in spec.get("taints") or ()
        if taint.get("effect") in BLOCKING
    )


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and toleration.get("value", "") == taint.get("value", "")


def _target(look: Look, pool: str) -> Target:
    target = look.policy.spec.targets.pool(pool)
    assert target is not None
    return target


def existing(body: Json) -> int:
    """Return how many pods a target has; ready or not."""
    return int((body.get("status") or {}).get("replicas") or 0)


def _pod(body: Json) -> Json:
    """Return the spec of the pods; empty where the object has no template at the usual place."""
    pod: Json = ((body.get("spec") or {}).get("template") or {}).get("spec") or {}
    return pod
