"""Reading targets from the API server, and the pods of those that are no Deployments."""

from __future__ import annotations

from urllib.parse import quote

from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kinds import is_other
from rlscaler_operator.cluster.kube import Kube, object_path


async def read_target(kube: Kube, cache: WatchCache, key: Key) -> bool:
    """Take in a target as it is now; return True where a policy has to react to it.

    Of a kind besides Deployments the scale is read, and its pods where it selects others than before. Raises KubeError,
    and KeyError where the kind is not enabled.
    """
    path = cache.kinds.path(key)
    body = await kube.get(path)
    if not is_other(key[1]):
        return cache.put_deployment(body)
    scale = await kube.get(f"{path}/scale")
    anew = cache.selects_anew(key, scale)
    changed = cache.put_scaled(key, body, scale)
    if anew:
        selector = quote(scale["status"]["selector"])
        pods = await kube.get(f"{object_path('v1', 'pods', key[0])}?labelSelector={selector}")
        for pod in pods.get("items", ()):
            pod["metadata"].setdefault("namespace", key[0])
            cache.put_pod(pod)
    return changed or anew
