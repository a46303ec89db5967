"""The last act of an operator whose own namespace is being deleted.

No hook of Helm runs then, and no operator will come back to remove the finalizers of policies in other namespaces. Pods
are the first that Kubernetes (1.33 or newer) ends in such a namespace, so their account still has its permissions.
"""

from __future__ import annotations

import logging

from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import KubeError, OperatorError
from rlscaler_operator.run.release import release
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler.farewell")


async def farewell(kube: Kube, settings: Settings) -> None:
    """Let go of all policies where the Lease's namespace is being deleted. Called when this operator acts no more."""
    try:
        metadata = await kube.get_metadata(f"/api/v1/namespaces/{settings.lease_namespace}")
    except KubeError as error:
        log.debug("whether namespace %s stays is not known: %s", settings.lease_namespace, error)
        return
    if "deletionTimestamp" not in metadata:
        return
    try:
        released = await release(kube, settings, acting=False)
    except OperatorError as error:
        log.error(
            "namespace %s is being deleted, and policies with restoreOnDelete keep their finalizer: %s; "
            "run `rlscaler operator release`",
            settings.lease_namespace,
            error,
        )
        return
    log.info("namespace %s is being deleted: released %s", settings.lease_namespace, ", ".join(released) or "nothing")
