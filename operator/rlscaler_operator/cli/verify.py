"""Checks whether an installation works, from inside a pod under the operator's own account (`helm test`).

What the account may do is asked of the API server itself: what is missing, and what is too much.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import aiohttp
import yaml
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_before_delay, wait_fixed

from rlscaler_core.api import GROUP, PLURAL, VERSION
from rlscaler_operator.cli.findings import Finding
from rlscaler_operator.cluster.kinds import TargetKinds
from rlscaler_operator.cluster.kube import REVIEWS, Kube, object_path
from rlscaler_operator.cluster.lease import API_VERSION, VACANT
from rlscaler_operator.cluster.shards import lease_names
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.settings import Settings

HTTP_SECONDS = 10.0
"""The longest wait for an answer of Prometheus or of the operator."""

CONCURRENT = 8
"""Reviews of permissions that are under way at the same time."""

ACCOUNTS = "system:serviceaccount:"
"""How the user names of ServiceAccounts begin; namespace and name follow."""


@dataclass(frozen=True)
class Act:
    """One verb on one resource; the namespace "" stands for all namespaces, the name "" for any."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f"in {self.namespace}" if self.namespace else "in all namespaces"
        return " ".join(part for part in (self.verb, what, self.name, where) if part)


TOO_MUCH = (
    Act("get", "", "secrets"),
    Act("list", "", "secrets"),
    Act("get", "", "configmaps"),
    Act("create", "", "pods"),
    Act("delete", "", "pods"),
    Act("create", "", "pods/exec"),
    Act("create", "", "serviceaccounts/token"),
    Act("patch", "", "nodes"),
    Act("update", "apps", "deployments"),
    Act("patch", "apps", "deployments"),
    Act("delete", "apps", "deployments"),
    Act("create", "rlscaler.io", "rlscalingpolicies"),
    Act("delete", "rlscaler.io", "rlscalingpolicies"),
    Act("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    Act("create", "rbac.authorization.k8s.io", "rolebindings"),
    Act("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    Act("bind", "rbac.authorization.k8s.io", "clusterroles"),
    Act("impersonate", "", "users"),
)
"""Acts that must be denied to an operator: with any of them it could take over workloads, or the cluster."""


async def verify(
    kube: Kube, settings: Settings, operator_url: str | None = None, patience_seconds: float = 0.0
) -> AsyncIterator[Finding]:
    """Check the API, permissions, Leases, Prometheus and, where its address is known, the operator's readiness.

    What comes up by itself after an installation is asked for again, `patience_seconds` long over all checks: the API,
    a Lease that is new, Prometheus and the operator.
    """
    deadline = time.monotonic() + patience_seconds

    async def patiently(check: Callable[..., Awaitable[Finding]], *arguments: Any) -> Finding:
        return await AsyncRetrying(
            stop=stop_before_delay(max(0.0, deadline - time.monotonic())),
            wait=wait_fixed(1),
            retry=retry_if_result(lambda finding: finding.failed),
            retry_error_callback=_last_finding,
        )(check, *arguments)

    yield await patiently(definition, kube)
    yield await permissions(kube, needed(settings))
    yield await _denials(kube, settings)
    for name in lease_names(settings):
        yield await patiently(lease, kube, settings, name)
    url, remedy = settings.prometheus_url, "set --prometheus-url (prometheus.url of the chart) to one that pods reach"
    yield await patiently(_answers, "Prometheus", url.rstrip("/") + "/api/v1/query?query=vector(1)", remedy)
    if operator_url is not None:
        remedy = "`kubectl logs` of the operator's pods say why"
        yield await patiently(_answers, "the operator", operator_url.rstrip("/") + "/readyz", remedy)


def _last_finding(attempts: RetryCallState) -> Finding:
    assert attempts.outcome is not None
    found: Finding = attempts.outcome.result()
    return found


async def definition(kube: Kube) -> Finding:
    """Does the API server serve the resource?"""
    what = f"the API serves {PLURAL}.{GROUP}/{VERSION}"
    try:
        served = await kube.get(f"/apis/{GROUP}/{VERSION}")
    except KubeError as error:
        return Finding(what, f"{error}: apply crds/, or set crds.install of the chart", "api")
    names = {resource["name"] for resource in served.get("resources", ())}
    trouble = "" if f"{PLURAL}/status" in names else "it has no status: apply crds/ of this version"
    return Finding(what, trouble, "api")


async def permissions(kube: Kube, acts: list[Act], account: str = "") -> Finding:
    """May the account do all this? `account` is the user name of another one; empty = the one that asks."""
    who = f"{account.removeprefix(ACCOUNTS)}" if account else "the account"
    answers = await reviewed(kube, acts, account)
    if isinstance(answers, str):
        return Finding(f"{who} has its permissions", answers, "permissions")
    missing = [str(act) for act, may in zip(acts, answers, strict=True) if not may]
    trouble = f"it may not {'; '.join(missing)}: grant what docs/operator-permissions.md lists" if missing else ""
    return Finding(f"{who} has its {len(acts)} permissions", trouble, "permissions")


async def _denials(kube: Kube, settings: Settings) -> Finding:
    acts = too_much(settings)
    answers = await reviewed(kube, acts)
    if isinstance(answers, str):
        return Finding("the account may do nothing more", answers, "refusals")
    more = [str(act) for act, may in zip(acts, answers, strict=True) if may]
    trouble = f"it may also {'; '.join(more)}: remove the binding that allows it" if more else ""
    return Finding(f"the account is refused {len(acts)} acts that would be too much", trouble, "refusals")


async def reviewed(kube: Kube, acts: list[Act], account: str = "") -> list[bool] | str:
    """Return for each act whether it is allowed, or say why the API server does not tell."""
    slots = asyncio.Semaphore(CONCURRENT)

    async def one(act: Act) -> bool:
        async with slots:
            return await allowed(kube, act, account)

    try:
        return await asyncio.gather(*map(one, acts))
    except KubeError as error:
        return f"the API server does not say: {error}"


async def lease(kube: Kube, settings: Settings, name: str) -> Finding:
    """Does an operator hold a Lease?"""
    what = f"an operator holds the Lease {settings.lease_namespace}/{name}"
    try:
        body = await kube.get(object_path(API_VERSION, "leases", settings.lease_namespace, name))
    except KubeError as error:
        text = f"{error}; operators make it: `kubectl logs` of their pods say why they have not"
        return Finding(what, text, "lease")
    holder = (body.get("spec") or {}).get("holderIdentity")
    if holder == VACANT:
        text = "none does yet: it was made anew, and an operator takes it when it expires; try again then"
        return Finding(what, text, "lease")
    trouble = "" if holder else "none does: `kubectl logs` say why"
    return Finding(f"{what}: {holder}" if holder else what, trouble, "lease")


async def _answers(who: str, url: str, remedy: str) -> Finding:
    what, about = f"{who} answers at {url}", who.split()[-1].lower()
    try:
        timeout = aiohttp.ClientTimeout(total=HTTP_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            if answer.status < 300 or answer.status in (401, 403):
                return Finding(what, about=about)
            text = (await answer.text()).strip()[:200]
            return Finding(what, f"it says {answer.status} {text}: {remedy}", about)
    except (aiohttp.ClientError, TimeoutError) as error:
        return Finding(what, f"{str(error) or 'no answer in time'}: {remedy}", about)


def needed(settings: Settings) -> list[Act]:
    """Return the acts that the roles shipped with the operator allow, as far as these settings need them."""
    acts = [act for act in _role("rbac.yaml", "rlscaler-operator") for act in _everywhere(act, settings)]
    for wanted, role in (
        (settings.pod_deletion_cost, "rlscaler-pod-deletion-cost"),
        (settings.resize, "rlscaler-pod-resize"),
    ):
        if wanted:
            acts += [a for act in _role("rbac-optional.yaml", role) for a in _everywhere(act, settings)]
    for kind in TargetKinds(settings.target_kinds).others:
        group = kind.resource.group
        own = [Act(verb, group, kind.plural) for verb in ("get", "list", "watch")]
        own += [Act(verb, group, f"{kind.plural}/scale") for verb in ("get", "patch")]
        acts += [a for act in own for a in _everywhere(act, settings)]
    leases = Act("", "coordination.k8s.io", "leases", settings.lease_namespace)
    acts += [replace(leases, verb=verb, name=name) for name in lease_names(settings) for verb in ("get", "update")]
    acts.append(Act("get", "", "namespaces", settings.lease_namespace, settings.lease_namespace))
    acts.append(replace(leases, verb="create"))
    if settings.shards > 1:
        acts += [replace(leases, verb=verb) for verb in ("list", "delete")]
    return acts


def too_much(settings: Settings) -> list[Act]:
    """Return the acts of TOO_MUCH in the served namespaces, in the Lease's and in all namespaces."""
    namespaces = (*settings.namespaces, settings.lease_namespace, "")
    return [replace(act, namespace=namespace) for act in TOO_MUCH for namespace in dict.fromkeys(namespaces)]


async def allowed(kube: Kube, act: Act, account: str = "") -> bool:
    """Ask whether an account may do it, by its user name; empty = the one that asks. Raises KubeError."""
    resource, _, subresource = act.resource.partition("/")
    attributes = {
        "verb": act.verb,
        "group": act.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": act.namespace,
        "name": act.name,
    }
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "spec": {"resourceAttributes": attributes} | ({"user": account} if account else {}),
    }
    answer = await kube.create(f"{REVIEWS}/{kind.lower()}s", review)
    return bool(answer["status"].get("allowed"))


def _role(file: str, name: str) -> Iterator[Act]:
    """Read the acts that a role of a file in this package allows."""
    text = resources.files("rlscaler_operator").joinpath(file).read_text(encoding="utf-8")
    role: dict[str, Any] = next(role for role in yaml.safe_load_all(text) if role["metadata"]["name"] == name)
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Act(verb, group, resource)


def _everywhere(act: Act, settings: Settings) -> Iterator[Act]:
    """Yield the act in each served namespace."""
    for namespace in settings.namespaces or ("",):
        yield replace(act, namespace=namespace)
