"""Waiting, and the conditions that a starting cluster waits for."""

from __future__ import annotations

from collections.abc import Callable

import requests
import tenacity

from rlscaler_dev.cluster.kube import KubeClient, has_condition
from rlscaler_dev.exceptions import ApiError, StartError

NOT_READY_TAINT = "node.kubernetes.io/not-ready"


def wait_until(
    condition: Callable[[], bool], event: str, timeout_seconds: float, interval_seconds: float = 0.1
) -> None:
    """Poll until `condition` holds; refused connections count as not yet.

    Raises StartError that names `event` and the last refusal; any StartError of `condition` ends the wait at once.
    """
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_delay(timeout_seconds),
        wait=tenacity.wait_fixed(interval_seconds),
        retry=tenacity.retry_if_exception_type((ApiError, requests.RequestException))
        | tenacity.retry_if_result(lambda held: not held),
    )
    try:
        retrying(condition)
    except tenacity.RetryError as error:
        reason = error.last_attempt.exception()
        raise StartError(
            f"{event} did not happen within {timeout_seconds:.0f} s" + (f": {reason}" if reason else "")
        ) from error


def ready_api(client: KubeClient) -> bool:
    """Whether the API server reports itself ready."""
    return str(client.get("/readyz")).strip() == "ok"


def nodes_schedulable(client: KubeClient, count: int) -> bool:
    """Whether at least `count` nodes are Ready and free of the not-ready taint that new nodes carry."""
    usable = 0
    for node in client.get("/api/v1/nodes")["items"]:
        taints = {taint["key"] for taint in node["spec"].get("taints", [])}
        usable += has_condition(node, "Ready") and NOT_READY_TAINT not in taints
    return usable >= count


def settled(client: KubeClient) -> bool:
    """Whether pods can be created (the default service account is there) and all CRDs are served."""
    client.get("/api/v1/namespaces/default/serviceaccounts/default")
    definitions = client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    return all(has_condition(definition, "Established") for definition in definitions)


def api_available(client: KubeClient, name: str) -> bool:
    """Whether the aggregated API, e.g. "v1beta1.metrics.k8s.io", is available."""
    service = client.find(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}")
    return service is not None and has_condition(service, "Available")


def answers(url: str) -> bool:
    """Whether a URL of this machine answers with success."""
    with requests.Session() as session:
        session.trust_env = False
        try:
            return session.get(url, timeout=3).ok
        except requests.RequestException:
            return False
