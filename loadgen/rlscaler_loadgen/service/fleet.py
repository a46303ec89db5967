"""Fleet mode: one process stands for all pods of a GPU and a CPU Deployment."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kubernetes.aio import client, config
from kubernetes.aio.config import ConfigException

from rlscaler_loadgen.errors import ServiceError
from rlscaler_loadgen.service.annotations import UsageAnnotations
from rlscaler_loadgen.service.app import Listen, Service, run_until_signal
from rlscaler_loadgen.service.cluster import ClusterSource


@dataclass(frozen=True)
class Fleet:
    """Which objects of which cluster the service stands for.

    kubeconfig: None = the process's own cluster, from its service account.
    """

    kubeconfig: str | None
    namespace: str
    deployments: dict[str, str]
    http_route: str | None
    backends: dict[str, str]
    annotate: bool = True

    async def connect(self) -> client.ApiClient:
        """An API client; raises ServiceError where the configuration does not hold one."""
        settings = client.Configuration()
        try:
            if self.kubeconfig is None:
                config.load_incluster_config(client_configuration=settings)
            else:
                await config.load_kube_config(
                    config_file=self.kubeconfig, client_configuration=settings, persist_config=False
                )
        except (ConfigException, OSError) as error:
            where = self.kubeconfig or "in-cluster configuration"
            raise ServiceError(f"kubeconfig {where}: {error}; pass --kubeconfig FILE") from error
        return client.ApiClient(settings)

    async def follow(self, service: Service, api: client.ApiClient) -> None:
        """Keep the service's router as the cluster is, until cancelled."""
        source = ClusterSource(api, self.namespace, self.deployments, service.router, self.http_route, self.backends)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(source.run())
            if self.annotate:
                tasks.create_task(UsageAnnotations(api, self.namespace, service.router, service.usage).run())


async def run_fleet(fleet: Fleet, service: Service, listen: Listen, ready: object) -> None:
    """Serve for the fleet until SIGINT or SIGTERM."""
    async with await fleet.connect() as api:
        await run_until_signal(service, listen, ready, lambda: fleet.follow(service, api))  # type: ignore[arg-type]
