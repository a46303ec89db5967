"""Release of all policies before the operator is uninstalled.

A policy with `restoreOnDelete` has a finalizer that only an operator removes: without an operator neither the policy
nor its namespace nor the CustomResourceDefinition could ever be deleted. The operators' Leases are taken first, so that
no operator sets a finalizer again; they stay ours for HOLD_SECONDS, in which the operators have to be stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from rlscaler_core.api import GROUP, PLURAL, VERSION
from rlscaler_operator.actuation.restore import FINALIZER
from rlscaler_operator.cluster.bodies import key_of
from rlscaler_operator.cluster.kube import CONFLICT_ATTEMPTS, CONFLICTS, Json, Kube, listed, policy_path
from rlscaler_operator.cluster.lease import seize
from rlscaler_operator.cluster.shards import lease_names
from rlscaler_operator.exceptions import KubeError, OperatorError
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler.release")

HOLD_SECONDS = 90
"""Time for which no operator acts after the release, unless the Lease is deleted."""

RESTORE_SECONDS = 15.0
"""Time that an operator gets to restore the originals of policies that are being deleted already."""


async def release(kube: Kube, settings: Settings, acting: bool = True) -> list[str]:
    """Remove our finalizer from every policy that the operators serve, and return these policies as namespace/name.

    `acting` means that an operator still acts and may restore the originals of policies that are being deleted. Raises
    OperatorError where the API server refuses a request.
    """
    if not [
        body
        async for body in _policies(kube, settings)
        if _has_finalizer(body) or (body.get("spec") or {}).get("restoreOnDelete")
    ]:
        return []
    if acting:
        await _wait_for_deletions(kube, settings)
    for name in lease_names(settings):
        await seize(kube, settings, name, HOLD_SECONDS)
    released = await _remove_finalizers(kube, settings)
    # A holder that has not noticed yet may write until its own deadline, which is before this.
    await asyncio.sleep(settings.lease_seconds)
    return sorted({*released, *await _remove_finalizers(kube, settings)})


async def release_if_namespace_ends(kube: Kube, settings: Settings) -> None:
    """Release all policies where the namespace of the Lease is being deleted; called when this operator has stopped.

    No hook of Helm runs then, and no operator will come back to remove the finalizers of policies in other namespaces.
    Pods are the first objects that Kubernetes (1.34 or newer) ends in such a namespace, so their account still has its
    permissions.
    """
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


def _policies(kube: Kube, settings: Settings) -> AsyncIterator[Json]:
    """Yield the policies; there are none where the CustomResourceDefinition is missing."""
    return listed(kube, settings.namespaces, f"{GROUP}/{VERSION}", PLURAL, optional=True)


def _has_finalizer(body: Json) -> bool:
    return FINALIZER in (body["metadata"].get("finalizers") or ())


async def _wait_for_deletions(kube: Kube, settings: Settings) -> None:
    deadline = asyncio.get_running_loop().time() + RESTORE_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        going = [
            _name(body)
            async for body in _policies(kube, settings)
            if _has_finalizer(body) and "deletionTimestamp" in body["metadata"]
        ]
        if not going:
            return
        log.info("waiting for the operator to restore what %s found", ", ".join(going))
        await asyncio.sleep(1.0)


async def _remove_finalizers(kube: Kube, settings: Settings) -> list[str]:
    policies = _policies(kube, settings)
    return [_name(body) async for body in policies if _has_finalizer(body) and await _remove_finalizer(kube, body)]


async def _remove_finalizer(kube: Kube, body: Json) -> bool:
    """Remove our finalizer and no other; return False where the policy is gone or lacks it. Raises OperatorError."""
    path = policy_path(key_of(body))
    try:
        for _ in range(CONFLICT_ATTEMPTS):
            before = list(body["metadata"].get("finalizers") or ())
            # The `test` fails where another writer has changed the finalizers: the policy is then read again.
            patch = [
                {"op": "test", "path": "/metadata/finalizers", "value": before},
                {"op": "add", "path": "/metadata/finalizers", "value": [name for name in before if name != FINALIZER]},
            ]
            try:
                await kube.patch(path, patch)
                return True
            except KubeError as error:
                if error.status not in CONFLICTS:
                    raise
            body = await kube.get(path)
            if not _has_finalizer(body):
                return False
    except KubeError as error:
        if error.status == 404:
            return False
        raise
    raise OperatorError(f"{_name(body)} changes faster than its finalizer can be removed: try again")


def _name(body: Json) -> str:
    return "/".join(key_of(body))
