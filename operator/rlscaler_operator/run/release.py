"""Letting go of all policies before the operator is uninstalled.

A policy with `restoreOnDelete` has a finalizer that only an operator removes: without one it could never be deleted,
nor could its namespace or the CustomResourceDefinition. The operators' Leases are taken first, so that none of them
sets a finalizer again; they stay ours for HOLD_SECONDS, in which the operators are to be stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from rlscaler_core.api import GROUP, PLURAL, VERSION
from rlscaler_operator.actuation.restore import FINALIZER
from rlscaler_operator.cluster.kube import Json, Kube, listed, object_path
from rlscaler_operator.cluster.lease import API_VERSION
from rlscaler_operator.cluster.shards import lease_names
from rlscaler_operator.exceptions import KubeError, OperatorError
from rlscaler_operator.settings import Settings

log = logging.getLogger("rlscaler.release")

HOLD_SECONDS = 90
"""How long no operator acts afterwards, unless the Lease is deleted."""

RESTORE_SECONDS = 15.0
"""Time for policies that are being deleted already: an operator restores what they ask for."""

ATTEMPTS = 5
"""Of a write that another one came before."""

CONFLICTS = (409, 422)
"""A resourceVersion, or the `test` of a JSON patch, is not current any more."""


async def release(kube: Kube, settings: Settings, acting: bool = True) -> list[str]:
    """Remove our finalizer from every policy that the operators serve; the policies as namespace/name.

    `acting`: an operator still acts, and may restore what a policy that is being deleted asks for. Raises OperatorError
    where the API server refuses it.
    """
    if not [body async for body in _policies(kube, settings) if _holds(body) or _asks(body)]:
        return []
    if acting:
        await _wait_for_deletions(kube, settings)
    for name in lease_names(settings):
        await _take(kube, settings, name)
    released = await _sweep(kube, settings)
    # A holder that has not noticed yet may write until its own deadline, which is before this.
    await asyncio.sleep(settings.lease_seconds)
    return sorted({*released, *await _sweep(kube, settings)})


def _policies(kube: Kube, settings: Settings) -> AsyncIterator[Json]:
    """Without the definition there are none."""
    return listed(kube, settings.namespaces, f"{GROUP}/{VERSION}", PLURAL, optional=True)


def _holds(body: Json) -> bool:
    return FINALIZER in (body["metadata"].get("finalizers") or ())


def _asks(body: Json) -> bool:
    return bool((body.get("spec") or {}).get("restoreOnDelete"))


async def _wait_for_deletions(kube: Kube, settings: Settings) -> None:
    deadline = asyncio.get_running_loop().time() + RESTORE_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        going = [
            _name(body)
            async for body in _policies(kube, settings)
            if _holds(body) and "deletionTimestamp" in body["metadata"]
        ]
        if not going:
            return
        log.info("waiting for the operator to restore what %s found", ", ".join(going))
        await asyncio.sleep(1.0)


async def _take(kube: Kube, settings: Settings, name: str) -> None:
    """Become the holder, whoever is. Raises OperatorError."""
    path = object_path(API_VERSION, "leases", settings.lease_namespace, name)
    for _ in range(ATTEMPTS):
        try:
            lease = await kube.get(path)
            spec = dict(lease.get("spec") or {})
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
            spec |= {"holderIdentity": settings.identity, "leaseDurationSeconds": HOLD_SECONDS}
            await kube.replace(path, {**lease, "spec": spec | {"acquireTime": now, "renewTime": now}})
        except KubeError as error:
            if error.status == 404:
                log.info("no Lease %s/%s: no operator acts by it", settings.lease_namespace, name)
                return
            if error.status not in CONFLICTS:
                raise
        else:
            log.info("took the Lease %s/%s for %d s", settings.lease_namespace, name, HOLD_SECONDS)
            return
    raise OperatorError(f"Lease {settings.lease_namespace}/{name} changes faster than it can be taken: try again")


async def _sweep(kube: Kube, settings: Settings) -> list[str]:
    return [_name(body) async for body in _policies(kube, settings) if _holds(body) and await _let_go(kube, body)]


async def _let_go(kube: Kube, body: Json) -> bool:
    """Remove our finalizer and no other; False where the policy is gone. Raises OperatorError."""
    path = object_path(f"{GROUP}/{VERSION}", PLURAL, body["metadata"]["namespace"], body["metadata"]["name"])
    for _ in range(ATTEMPTS):
        before = list(body["metadata"].get("finalizers") or ())
        patch = [
            {"op": "test", "path": "/metadata/finalizers", "value": before},
            {"op": "add", "path": "/metadata/finalizers", "value": [name for name in before if name != FINALIZER]},
        ]
        try:
            await kube.patch(path, patch)
            return True
        except KubeError as error:
            if error.status == 404:
                return False
            if error.status not in CONFLICTS:
                raise
        try:
            body = await kube.get(path)
        except KubeError as error:
            if error.status == 404:
                return False
            raise
        if not _holds(body):
            return False
    raise OperatorError(f"{_name(body)} changes faster than its finalizer can be removed: try again")


def _name(body: Json) -> str:
    return f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"
