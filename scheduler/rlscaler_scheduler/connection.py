"""Address and credentials of the API server."""

from __future__ import annotations

from pathlib import Path

from kubernetes.aio import client, config
from kubernetes.aio.config import ConfigException

from rlscaler_scheduler.exceptions import SchedulerError


async def api_configuration(kubeconfig: Path | None) -> client.Configuration:
    """Read a kubeconfig; without one the service account of the pod, else the usual files. Raises SchedulerError."""
    made = client.Configuration()
    try:
        if kubeconfig is None:
            try:
                config.load_incluster_config(client_configuration=made)
            except ConfigException:
                await config.load_kube_config(client_configuration=made)
        else:
            await config.load_kube_config(config_file=str(kubeconfig), client_configuration=made)
    except Exception as error:  # the client library raises whatever a malformed file leads to
        said = " ".join(str(error).split())
        raise SchedulerError(f"cannot find a cluster: {said}; name a kubeconfig with --kubeconfig") from error
    return made
