"""The emulated service in fleet mode follows a real API server: pods, weights, usage."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from kubernetes.aio import client
from prometheus_client import generate_latest

from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_loadgen.service import annotations
from rlscaler_loadgen.service.app import Listen, Service
from rlscaler_loadgen.service.fleet import GATEWAY, Fleet, connect
from rlscaler_loadgen.service.router import Router

REQUEST = {"inputs": [{"name": "input", "shape": [1], "datatype": "FP32", "data": [1.0]}]}
NAMES = {"gpu": "chat-gpu", "cpu": "chat-cpu"}
SECONDS = 60.0


def deployment(pool: str, replicas: int) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "1"} if pool == "gpu" else {}
    container = {
        "name": "server",
        "image": "emulated",
        "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": limits},
    }
    template = {
        "metadata": {"labels": {"app": NAMES[pool], "rlscaler.io/flavour": pool}},
        "spec": {
            "nodeSelector": {"pool": pool},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [container],
        },
    }
    return {
        "metadata": {"name": NAMES[pool]},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": NAMES[pool]}}, "template": template},
    }


def route(gpu: int, cpu: int) -> dict[str, Any]:
    refs = [
        {"name": name, "port": 80, "weight": weight} for name, weight in zip(NAMES.values(), (gpu, cpu), strict=True)
    ]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "chat"},
        "spec": {"rules": [{"backendRefs": refs}]},
    }


@dataclass
class Running:
    """A fleet that serves over HTTP, and the API of its cluster."""

    service: Service
    fleet: Fleet
    api: client.ApiClient
    session: aiohttp.ClientSession

    @property
    def router(self) -> Router:
        return self.service.router

    async def scale(self, pool: str, replicas: int) -> None:
        patch = {"spec": {"replicas": replicas}}
        await client.AppsV1Api(self.api).patch_namespaced_deployment_scale(NAMES[pool], self.fleet.namespace, patch)

    async def weigh(self, gpu: int, cpu: int) -> None:
        await client.CustomObjectsApi(self.api).patch_namespaced_custom_object(
            **GATEWAY,
            namespace=self.fleet.namespace,
            name="chat",
            body={"spec": route(gpu, cpu)["spec"]},
            _content_type="application/merge-patch+json",
        )

    async def ask(self) -> tuple[int, str]:
        """Status and pool of one request."""
        async with self.session.post("/v2/models/chat/infer", json=REQUEST) as response:
            return response.status, response.headers["X-Rlscaler-Pool"]

    def pods_with_series(self) -> set[str]:
        text = generate_latest(self.service.registry).decode()
        lines = [line for line in text.splitlines() if line.startswith("container_cpu_usage_seconds_total{")]
        return {line.split('pod="')[1].split('"')[0] for line in lines}


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                result = condition()
                if result if isinstance(result, bool) else await result:
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"not within {SECONDS:.0f} s: {what}")


@contextlib.asynccontextmanager
async def running(cluster: ClusterInfo, gpu: int, cpu: int) -> AsyncIterator[Running]:
    """A fleet started before its objects exist, in a namespace of its own."""
    namespace = f"fleet-{uuid4().hex[:8]}"
    fleet = Fleet(str(cluster.kubeconfig), namespace, NAMES, "chat")
    async with await connect(fleet.kubeconfig) as api:
        core, apps = client.CoreV1Api(api), client.AppsV1Api(api)
        await core.create_namespace({"metadata": {"name": namespace}})
        service = Service(Router(seed=1), namespace, "chat")
        async with (
            service.serving(Listen(port=0, metrics_port=0)) as (url, _),
            aiohttp.ClientSession(url) as session,
        ):
            following = asyncio.create_task(fleet.follow(service, api))
            try:
                for pool, replicas in (("gpu", gpu), ("cpu", cpu)):
                    await apps.create_namespaced_deployment(namespace, deployment(pool, replicas))
                await client.CustomObjectsApi(api).create_namespaced_custom_object(
                    **GATEWAY, namespace=namespace, body=route(1, 1)
                )
                yield Running(service, fleet, api, session)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                await core.delete_namespace(namespace)


async def test_a_fleet_follows_pods_and_weights(cluster: ClusterInfo) -> None:
    async with running(cluster, gpu=0, cpu=0) as fleet:
        assert (await fleet.ask())[0] == 503
        await fleet.scale("gpu", 2)
        await fleet.scale("cpu", 1)
        await until(lambda: fleet.router.ready("gpu") == 2 and fleet.router.ready("cpu") == 1, "3 ready pods")
        await until(lambda: fleet.router.weights == {"gpu": 1, "cpu": 1}, "weights of the route")

        await fleet.weigh(750, 250)
        await until(lambda: fleet.router.weights == {"gpu": 750, "cpu": 250}, "changed weights")
        assert Counter([await fleet.ask() for _ in range(20)]) == {(200, "gpu"): 15, (200, "cpu"): 5}

        await fleet.weigh(0, 1)
        await until(lambda: fleet.router.weights == {"gpu": 0, "cpu": 1}, "weight 0")
        assert {await fleet.ask() for _ in range(4)} == {(200, "cpu")}

        before = fleet.pods_with_series()
        assert len(before) == 3
        await fleet.weigh(1, 1)
        await fleet.scale("cpu", 3)
        await fleet.scale("gpu", 0)
        await until(lambda: fleet.router.ready("cpu") == 3 and fleet.router.ready("gpu") == 0, "the scaled pools")
        await until(lambda: len(fleet.router.pods) == 3, "the deleted pods' end")
        assert len(fleet.pods_with_series() & before) == 1
        assert {await fleet.ask() for _ in range(6)} == {(200, "cpu")}


async def test_pods_beyond_the_gpus_stay_pending_and_take_no_requests(cluster: ClusterInfo) -> None:
    async with running(cluster, gpu=17, cpu=0) as fleet:
        await until(lambda: len(fleet.router.pods) == 17 and fleet.router.ready("gpu") == 16, "16 of 17 ready")
        pending = [pod for pod in fleet.router.pods.values() if not pod.routable]
        assert [(pod.started, pod.node) for pod in pending] == [(False, "")]
        assert pending[0].name not in fleet.pods_with_series()


async def test_usage_reaches_metrics_server(cluster: ClusterInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotations, "PERIOD_SECONDS", 1.0)
    async with running(cluster, gpu=0, cpu=1) as fleet:
        await until(lambda: fleet.router.ready("cpu") == 1, "a ready pod")
        stop = asyncio.Event()

        async def keep_busy() -> None:
            while not stop.is_set():
                await fleet.ask()

        async def millicores() -> float:
            found = await client.CustomObjectsApi(fleet.api).list_namespaced_custom_object(
                "metrics.k8s.io", "v1beta1", fleet.fleet.namespace, "pods"
            )
            usage = [pod["containers"][0]["usage"]["cpu"] for pod in found["items"] if pod["containers"]]
            if not usage:
                return 0.0
            return float(usage[0].rstrip("num")) / {"n": 1e6, "u": 1e3, "m": 1}.get(usage[0][-1], 1e-3)

        async def seen() -> bool:
            return 1500 < await millicores() < 2100

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(keep_busy())
            try:
                await until(seen, "a busy pod's 2 requested cores in metrics.k8s.io")
            finally:
                stop.set()
