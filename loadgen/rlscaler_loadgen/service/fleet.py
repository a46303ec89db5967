"""Fleet mode: one process stands for all pods of one or two Deployments, as the API server tells of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kubernetes.aio import client, config
from kubernetes.utils.quantity import parse_quantity

from rlscaler_loadgen.errors import ServiceError
from rlscaler_loadgen.service.annotations import UsageAnnotations
from rlscaler_loadgen.service.app import Listen, Service, run_until_signal
from rlscaler_loadgen.service.router import Pod, Router
from rlscaler_loadgen.service.watch import Follower, Object, read_json

logger = logging.getLogger(__name__)

GATEWAY = {"group": "gateway.networking.k8s.io", "version": "v1", "plural": "httproutes"}
GPU_RESOURCE = "nvidia.com/gpu"
FINISHED = ("Succeeded", "Failed")


class Book(Protocol):
    """Receiver of events of pods: they appear or change, and are gone."""

    @property
    def pods(self) -> Mapping[str, Pod]: ...

    def apply(self, pod: Pod) -> None: ...

    def remove(self, name: str) -> None: ...


@dataclass
class ClusterSource:
    """Feeds a `Router` from the pods of one or two Deployments and the backend weights of an HTTPRoute.

    deployments: Deployment by pool, and name of the route's backend Service. Without a route the router shares the load
    by the ready capacity.
    """

    api: client.ApiClient
    namespace: str
    deployments: Mapping[str, str]
    router: Router
    http_route: str | None = None

    async def run(self) -> None:
        """Follow everything until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for pool, deployment in self.deployments.items():
                tasks.create_task(pods_of(self.api, self.namespace, deployment, pool, self.router).run())
            if self.http_route is not None:
                tasks.create_task(self._route(self.http_route).run())

    def _route(self, name: str) -> Follower:
        async def prepare() -> dict[str, Any]:
            return {**GATEWAY, "namespace": self.namespace, "field_selector": f"metadata.name={name}"}

        def replace(items: list[Object]) -> None:
            for item in items:
                change(item, False)

        def change(item: Object, deleted: bool) -> None:
            # A deleted route leaves its last weights in force, as a gateway that loses its control plane does.
            if deleted:
                return
            weights = parse_weights(item, self.deployments)
            if weights is None:
                logger.warning(
                    "HTTPRoute %s/%s: no rule names backend %s; the ready capacity shares the load",
                    *(self.namespace, name, " or ".join(self.deployments.values())),
                )
            if weights != self.router.weights:
                self.router.set_weights(weights)

        call = client.CustomObjectsApi(self.api).list_namespaced_custom_object_without_preload_content
        return Follower(f"HTTPRoute {self.namespace}/{name}", call, prepare, replace, change)


def pods_of(api: client.ApiClient, namespace: str, deployment: str, pool: str, book: Book) -> Follower:
    """Return a follower that keeps `book` up to date with the pods of a Deployment, as pods of `pool`."""

    async def prepare() -> dict[str, Any]:
        response = await client.AppsV1Api(api).read_namespaced_deployment_without_preload_content(deployment, namespace)
        async with response:
            body = await read_json(response, f"Deployment {namespace}/{deployment}")
        return {"namespace": namespace, "label_selector": selector_text(body["spec"]["selector"])}

    def replace(items: list[Object]) -> None:
        listed = {item["metadata"]["name"] for item in items}
        for pod in [pod for pod in book.pods.values() if pod.pool == pool and pod.name not in listed]:
            book.remove(pod.name)
        for item in items:
            change(item, False)

    def change(item: Object, deleted: bool) -> None:
        if deleted or item.get("status", {}).get("phase") in FINISHED:
            book.remove(item["metadata"]["name"])
        else:
            book.apply(parse_pod(item, pool))

    call = client.CoreV1Api(api).list_namespaced_pod_without_preload_content
    return Follower(f"pods of Deployment {namespace}/{deployment}", call, prepare, replace, change)


def selector_text(selector: Object) -> str:
    """A LabelSelector in the form of a query parameter."""
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or []:
        key, values = term["key"], ",".join(term.get("values") or [])
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        terms.append(texts.get(term["operator"], f"!{key}"))
    return ",".join(terms)


def parse_pod(item: Object, pool: str) -> Pod:
    """Reduce a pod of the API to the fields that the service reads."""
    metadata, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
    conditions = {entry["type"]: entry["status"] for entry in status.get("conditions") or []}
    containers = spec.get("containers") or []
    requests = [(container.get("resources") or {}).get("requests") or {} for container in containers]
    ready = conditions.get("Ready") == "True"
    return Pod(
        name=metadata["name"],
        pool=pool,
        ready=ready,
        terminating=metadata.get("deletionTimestamp") is not None,
        started=ready or status.get("phase") == "Running",
        node=spec.get("nodeName") or "",
        container=containers[0]["name"] if containers else "server",
        cpu_request=_total(requests, "cpu"),
        memory_request=_total(requests, "memory"),
        gpus=int(_total(requests, GPU_RESOURCE) or 0),
    )


def parse_weights(route: Object, backends: Mapping[str, str]) -> dict[str, float] | None:
    """Weight by pool from the first rule that names one of the backends; None where no rule does."""
    pools = {name: pool for pool, name in backends.items()}
    for rule in (route.get("spec") or {}).get("rules") or []:
        named = [ref for ref in rule.get("backendRefs") or [] if ref.get("name") in pools]
        if named:
            weights = dict.fromkeys(backends, 0.0)
            for ref in named:
                weights[pools[ref["name"]]] += ref.get("weight", 1)
            return weights
    return None


def _total(requests: list[dict[str, str]], resource: str) -> float | None:
    amounts = [float(parse_quantity(request[resource])) for request in requests if resource in request]
    return sum(amounts) if amounts else None


async def connect(kubeconfig: str | None) -> client.ApiClient:
    """An API client; None = the process's own cluster, from its service account.

    Raises ServiceError where the configuration does not hold one.
    """
    settings = client.Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(client_configuration=settings)
        else:
            await config.load_kube_config(config_file=kubeconfig, client_configuration=settings, persist_config=False)
    except Exception as error:  # the client library raises whatever a malformed file leads to
        where, reason = kubeconfig or "in-cluster configuration", " ".join(str(error).split())
        raise ServiceError(f"kubeconfig {where}: {reason}; pass --kubeconfig FILE") from error
    return client.ApiClient(settings)


@dataclass(frozen=True)
class Fleet:
    """Objects of a cluster that the service stands for; `kubeconfig` is that of `connect`."""

    kubeconfig: str | None
    namespace: str
    deployments: dict[str, str]
    http_route: str | None

    async def follow(self, service: Service, api: client.ApiClient) -> None:
        """Keep the service's router as the cluster is, until cancelled."""
        source = ClusterSource(api, self.namespace, self.deployments, service.router, self.http_route)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(source.run())
            tasks.create_task(UsageAnnotations(api, self.namespace, service.router, service.usage).run())


async def run_fleet(fleet: Fleet, service: Service, listen: Listen, ready: object) -> None:
    """Serve for the fleet until SIGINT or SIGTERM."""
    async with await connect(fleet.kubeconfig) as api:
        await run_until_signal(service, listen, ready, lambda: fleet.follow(service, api))  # type: ignore[arg-type]
