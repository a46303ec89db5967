"""Preflight of the room for replicas: the namespace's quotas and the nodes that have the pods' GPUs. Mostly pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from rlscaler_core.api.targets import Target
from rlscaler_operator.cli.findings import Finding
from rlscaler_operator.cli.preflight.look import Look
from rlscaler_operator.cluster.bodies import quantity, request_of
from rlscaler_operator.cluster.kube import Json, Kube, listed
from rlscaler_operator.exceptions import OperatorError

BLOCKING = ("NoSchedule", "NoExecute")
"""Effects of a taint that keep a pod away which does not tolerate it."""


async def check_room(kube: Kube, look: Look) -> list[Finding]:
    """Is there room for the replicas that the policy may ask for? What may not be read is said and not guessed."""
    bodies: dict[str, Json] = {}
    for pool, key in look.policy.facts.targets:
        if key in look.context.engine.cache.deployments:
            bodies[pool] = await kube.get(look.context.engine.cache.kinds.path(key))
    return [*await _quotas(kube, look, bodies), *await _nodes(kube, look, bodies)]


async def _quotas(kube: Kube, look: Look, bodies: Mapping[str, Json]) -> list[Finding]:
    what = f"the quotas of {look.policy.key[0]} leave room for maxReplicas"
    try:
        quotas = [quota async for quota in listed(kube, [look.policy.key[0]], "v1", "resourcequotas")]
    except OperatorError as error:
        return [Finding(what, f"not checked: {error}", "quota", stops=False)]
    if not quotas:
        return [Finding(f"no ResourceQuota limits {look.policy.key[0]}", about="quota")]
    wanted = [(_target(look, pool), body) for pool, body in bodies.items()]
    troubles = [text for quota in quotas for text in short_of(quota, wanted)]
    return [Finding(what, "; ".join(troubles), "quota")]


def short_of(quota: Json, wanted: Sequence[tuple[Target, Json]]) -> Iterator[str]:
    """Yield which resource of a quota does not last for `maxReplicas` of all targets, beside what is used already."""
    status = quota.get("status") or {}
    hard, used = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}, status.get("used") or {}
    for resource, text in hard.items():
        more = sum(
            (target.max_replicas - _replicas(body)) * _of_pod(body, resource)
            for target, body in wanted
            if target.max_replicas > _replicas(body)
        )
        left = float(parse_quantity(text) - parse_quantity(used.get(resource, "0")))
        if more > left:
            yield (
                f"ResourceQuota {quota['metadata']['name']}: {resource} has {left:g} left of {text} and maxReplicas "
                f"need {more:g} more: raise it, or lower spec.targets.*.maxReplicas"
            )


def _of_pod(body: Json, resource: str) -> float:
    """What one pod takes of a resource of a quota: `pods`, `requests.cpu`, `cpu`, `limits.memory`, ..."""
    if resource in ("pods", "count/pods"):
        return 1.0
    limited = resource.startswith("limits.")
    name = resource.removeprefix("limits.").removeprefix("requests.")
    containers = _pod(body).get("containers") or ()
    if limited:
        return sum(quantity(((one.get("resources") or {}).get("limits") or {}).get(name)) for one in containers)
    return sum(request_of(one, name) for one in containers)


async def _nodes(kube: Kube, look: Look, bodies: Mapping[str, Json]) -> list[Finding]:
    found: list[Finding] = []
    asking = {pool: devices(body) for pool, body in bodies.items() if devices(body)}
    if not asking:
        return found
    try:
        nodes = [node async for node in listed(kube, [], "v1", "nodes")]
    except OperatorError as error:
        return [Finding("nodes have the GPUs that the pods ask for", f"not checked: {error}", "gpu-nodes", stops=False)]
    for pool, wanted in asking.items():
        target = _target(look, pool)
        for resource, each in wanted.items():
            fitting = [node for node in nodes if fits(node, _pod(bodies[pool]))]
            places = sum(int(float(parse_quantity(_allocatable(node, resource))) // each) for node in fitting)
            what = f"{len(fitting)} nodes can take {places} pods of {target.object_name} ({each:g} {resource} each)"
            about = f"gpu-nodes-{pool}"
            if not places:
                trouble = (
                    f"no node that the pods may run on has {resource} allocatable: is the device plugin running, and "
                    "do the pods tolerate the taints of the GPU nodes?"
                )
                yields_none = bodies[pool].get("status", {}).get("readyReplicas")
                found.append(Finding(what, trouble, about, stops=not yields_none))
            elif places < target.max_replicas:
                trouble = (
                    f"spec.targets.{pool}.maxReplicas is {target.max_replicas}: lower it, unless nodes are added when "
                    "pods wait"
                )
                found.append(Finding(what, trouble, about, stops=False))
            else:
                found.append(Finding(what, about=about))
    return found


def devices(body: Json) -> dict[str, float]:
    """Give the devices that one pod of a Deployment asks for, such as `nvidia.com/gpu`: extended resources."""
    names = {
        name
        for container in _pod(body).get("containers") or ()
        for name in ((container.get("resources") or {}).get("limits") or {})
        if "/" in name and not name.startswith(("hugepages-", "kubernetes.io/"))
    }
    return {name: _of_pod(body, f"requests.{name}") for name in sorted(names)}


def fits(node: Json, pod: Json) -> bool:
    """May the pod run on the node, by its nodeSelector and by the node's taints? Affinities are not looked at."""
    labels = node["metadata"].get("labels") or {}
    spec = node.get("spec") or {}
    if spec.get("unschedulable") or any(labels.get(k) != v for k, v in (pod.get("nodeSelector") or {}).items()):
        return False
    tolerations = pod.get("tolerations") or ()
    return all(
        any(_tolerates(one, taint) for one in tolerations)
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


def _allocatable(node: Json, resource: str) -> str:
    return str((node.get("status") or {}).get("allocatable", {}).get(resource, "0"))


def _replicas(body: Json) -> int:
    return int(body["spec"].get("replicas", 1))


def _pod(body: Json) -> Json:
    """The pods' spec; empty where the object has no template at the usual place."""
    pod: Json = ((body.get("spec") or {}).get("template") or {}).get("spec") or {}
    return pod
