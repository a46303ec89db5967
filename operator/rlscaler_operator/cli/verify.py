"""Does an installation work? Asked from inside a pod under the operator's own account (`helm test`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp

from rlscaler_core.api import GROUP, PLURAL, VERSION
from rlscaler_operator.cli.permissions import Act, allowed, needed, too_much
from rlscaler_operator.cluster.kube import Kube, object_path
from rlscaler_operator.cluster.lease import API_VERSION
from rlscaler_operator.cluster.shards import lease_names
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.settings import Settings

HTTP_SECONDS = 10.0
CONCURRENT = 8


@dataclass(frozen=True)
class Finding:
    """What was looked at, and what is wrong with it."""

    what: str
    trouble: str = ""
    """With the remedy; empty = nothing is."""


async def verify(kube: Kube, settings: Settings, operator_url: str | None = None) -> AsyncIterator[Finding]:
    """Look at the API, permissions, Leases, Prometheus and, where its address is known, the operator's readiness."""
    yield await _definition(kube)
    yield await _permissions(kube, settings)
    yield await _denials(kube, settings)
    for name in lease_names(settings):
        yield await _lease(kube, settings, name)
    remedy = "set --prometheus-url (prometheus.url of the chart) to one that pods reach"
    yield await _answers("Prometheus", settings.prometheus_url.rstrip("/") + "/api/v1/query?query=vector(1)", remedy)
    if operator_url is not None:
        remedy = "`kubectl logs` of the operator's pods say why"
        yield await _answers("the operator", operator_url.rstrip("/") + "/readyz", remedy)


async def _definition(kube: Kube) -> Finding:
    what = f"the API serves {PLURAL}.{GROUP}/{VERSION}"
    try:
        served = await kube.get(f"/apis/{GROUP}/{VERSION}")
    except KubeError as error:
        return Finding(what, f"{error}: apply crds/, or set crds.install of the chart")
    names = {resource["name"] for resource in served.get("resources", ())}
    return Finding(what, "" if f"{PLURAL}/status" in names else "it has no status: apply crds/ of this version")


async def _permissions(kube: Kube, settings: Settings) -> Finding:
    acts = needed(settings)
    answers = await _reviewed(kube, acts)
    if isinstance(answers, str):
        return Finding("the account has its permissions", answers)
    missing = [str(act) for act, may in zip(acts, answers, strict=True) if not may]
    trouble = f"it may not {'; '.join(missing)}: grant what docs/operator-permissions.md lists" if missing else ""
    return Finding(f"the account has its {len(acts)} permissions", trouble)


async def _denials(kube: Kube, settings: Settings) -> Finding:
    acts = too_much(settings)
    answers = await _reviewed(kube, acts)
    if isinstance(answers, str):
        return Finding("the account may do nothing more", answers)
    more = [str(act) for act, may in zip(acts, answers, strict=True) if may]
    trouble = f"it may also {'; '.join(more)}: remove the binding that allows it" if more else ""
    return Finding(f"the account is refused {len(acts)} acts that would be too much", trouble)


async def _reviewed(kube: Kube, acts: list[Act]) -> list[bool] | str:
    """For each act whether it is allowed, or why that cannot be asked."""
    slots = asyncio.Semaphore(CONCURRENT)

    async def one(act: Act) -> bool:
        async with slots:
            return await allowed(kube, act)

    try:
        return await asyncio.gather(*map(one, acts))
    except KubeError as error:
        return f"the API server does not say: {error}"


async def _lease(kube: Kube, settings: Settings, name: str) -> Finding:
    what = f"an operator holds the Lease {settings.lease_namespace}/{name}"
    try:
        lease = await kube.get(object_path(API_VERSION, "leases", settings.lease_namespace, name))
    except KubeError as error:
        return Finding(what, f"{error}; `helm upgrade` makes it again")
    holder = (lease.get("spec") or {}).get("holderIdentity")
    return Finding(f"{what}: {holder}" if holder else what, "" if holder else "nobody does: `kubectl logs` say why")


async def _answers(who: str, url: str, remedy: str) -> Finding:
    what = f"{who} answers at {url}"
    try:
        timeout = aiohttp.ClientTimeout(total=HTTP_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            if answer.status < 300 or answer.status in (401, 403):
                return Finding(what)
            text = (await answer.text()).strip()[:200]
            return Finding(what, f"it says {answer.status} {text}: {remedy}")
    except (aiohttp.ClientError, TimeoutError) as error:
        return Finding(what, f"{str(error) or 'no answer in time'}: {remedy}")
