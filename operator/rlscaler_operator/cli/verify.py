"""Checks of an installation, from inside a pod under the operator's own account (`helm test`).

Permissions are asked of the API server itself: those that are missing, and those that are too wide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import aiohttp
import yaml
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_before_delay, wait_fixed

from rlscaler_core.api import GROUP, PLURAL, VERSION
from rlscaler_operator.cli.checks import Check
from rlscaler_operator.cluster.kinds import TargetKinds
from rlscaler_operator.cluster.kube import REVIEWS, Kube, object_path
from rlscaler_operator.cluster.lease import API_VERSION, VACANT
from rlscaler_operator.cluster.shards import lease_names
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.settings import Settings

HTTP_SECONDS = 10.0
"""Longest wait for an answer of Prometheus or of the operator."""

CONCURRENT = 8
"""Most reviews of permissions under way at the same time."""

ACCOUNTS = "system:serviceaccount:"
"""Prefix of the user names of ServiceAccounts; namespace and name follow."""


@dataclass(frozen=True)
class Act:
    """One verb on one resource; the namespace "" stands for all namespaces, the name "" for any."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f"in {self.namespace}" if self.namespace else "in all namespaces"
        return " ".join(part for part in (self.verb, resource, self.name, where) if part)


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
"""Acts that must be denied to an operator: with any of them an attacker could take over workloads, or the cluster."""


async def verify(
    kube: Kube, settings: Settings, operator_url: str | None = None, patience_seconds: float = 0.0
) -> AsyncIterator[Check]:
    """Check the API, permissions, Leases, Prometheus and, where its address is given, the operator's readiness.

    For `patience_seconds` over all checks, a failed check is repeated where time may mend it: the API, a Lease that is
    new, Prometheus and the operator.
    """
    deadline = time.monotonic() + patience_seconds

    async def patiently(check: Callable[..., Awaitable[Check]], *arguments: Any) -> Check:
        return await AsyncRetrying(
            stop=stop_before_delay(max(0.0, deadline - time.monotonic())),
            wait=wait_fixed(1),
            retry=retry_if_result(lambda result: result.failed),
            retry_error_callback=_last_result,
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


def _last_result(attempts: RetryCallState) -> Check:
    assert attempts.outcome is not None
    check: Check = attempts.outcome.result()
    return check


async def definition(kube: Kube) -> Check:
    """Check that the API server serves RLScalingPolicies, with their status."""
    title = f"the API serves {PLURAL}.{GROUP}/{VERSION}"
    try:
        served = await kube.get(f"/apis/{GROUP}/{VERSION}")
    except KubeError as error:
        return Check(title, f"{error}: apply crds/, or set crds.install of the chart", "api")
    names = {resource["name"] for resource in served.get("resources", ())}
    trouble = "" if f"{PLURAL}/status" in names else "it has no status: apply crds/ of this version"
    return Check(title, trouble, "api")


async def permissions(kube: Kube, acts: list[Act], account: str = "") -> Check:
    """Check that an account may do all `acts`. `account` is the user name of another account; empty = our own.

    A review of another account may be forbidden: that is a warning.
    """
    name = account.removeprefix(ACCOUNTS) or "the account"
    try:
        allowed = await reviewed(kube, acts, account)
    except KubeError as error:
        return Check(f"{name} has its permissions", not_reviewed(error), "permissions", stops=not account)
    trouble = lacks([act for act in acts if act not in allowed], "grant what docs/operator-permissions.md lists")
    return Check(f"{name} has its {len(acts)} permissions", trouble, "permissions")


async def _denials(kube: Kube, settings: Settings) -> Check:
    acts = too_much(settings)
    try:
        allowed = await reviewed(kube, acts)
    except KubeError as error:
        return Check("the account may do nothing more", not_reviewed(error), "refusals")
    more = "; ".join(str(act) for act in acts if act in allowed)
    trouble = f"it may also {more}: remove the binding that allows it" if more else ""
    return Check(f"the account is refused {len(acts)} acts that would be too much", trouble, "refusals")


def lacks(denied: Iterable[Act], remedy: str) -> str:
    """Return the trouble of an account that is denied some acts; empty where it is denied none."""
    acts = "; ".join(map(str, denied))
    return f"it may not {acts}: {remedy}" if acts else ""


def not_reviewed(error: KubeError) -> str:
    return f"not checked: the API server does not say: {error}"


async def reviewed(kube: Kube, acts: Iterable[Act], account: str = "") -> set[Act]:
    """Return those of `acts` that an account may do; empty = our own account. Raises KubeError."""
    slots = asyncio.Semaphore(CONCURRENT)

    async def review(act: Act) -> tuple[Act, bool]:
        async with slots:
            return act, await allowed(kube, act, account)

    return {act for act, may in await asyncio.gather(*map(review, acts)) if may}


async def lease(kube: Kube, settings: Settings, name: str) -> Check:
    """Check that an operator holds a Lease."""
    title = f"an operator holds the Lease {settings.lease_namespace}/{name}"
    try:
        body = await kube.get(object_path(API_VERSION, "leases", settings.lease_namespace, name))
    except KubeError as error:
        text = f"{error}; operators make it: `kubectl logs` of their pods say why they have not"
        return Check(title, text, "lease")
    holder = (body.get("spec") or {}).get("holderIdentity")
    if holder == VACANT:
        text = "none does yet: it was made anew, and an operator takes it when it expires; try again then"
        return Check(title, text, "lease")
    if not holder:
        return Check(title, "none does: `kubectl logs` say why", "lease")
    return Check(f"{title}: {holder}", about="lease")


async def _answers(server: str, url: str, remedy: str) -> Check:
    """Check that an HTTP server answers; a refused credential is an answer, too."""
    title, about = f"{server} answers at {url}", server.split()[-1].lower()
    try:
        timeout = aiohttp.ClientTimeout(total=HTTP_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            if answer.status < 300 or answer.status in (401, 403):
                return Check(title, about=about)
            text = (await answer.text()).strip()[:200]
            return Check(title, f"it says {answer.status} {text}: {remedy}", about)
    except (aiohttp.ClientError, TimeoutError) as error:
        return Check(title, f"{str(error) or 'no answer in time'}: {remedy}", about)


def needed(settings: Settings) -> list[Act]:
    """Return the acts of the roles shipped with the operator, as far as these settings need them."""
    acts = list(_role("rbac.yaml", "rlscaler-operator"))
    if settings.pod_deletion_cost:
        acts += _role("rbac-optional.yaml", "rlscaler-pod-deletion-cost")
    if settings.resize:
        acts += _role("rbac-optional.yaml", "rlscaler-pod-resize")
    for kind in TargetKinds(settings.target_kinds).others:
        group = kind.resource.group
        acts += [Act(verb, group, kind.plural) for verb in ("get", "list", "watch")]
        acts += [Act(verb, group, f"{kind.plural}/scale") for verb in ("get", "patch")]
    acts = [replace(act, namespace=namespace) for act in acts for namespace in settings.namespaces or ("",)]
    # `get` and `update` are needed on the named Leases only, the other verbs on any.
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
    """Return True where an account may do an act, by its user name; empty = our own account. Raises KubeError."""
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
    """Yield the acts that a role of a file in this package allows."""
    text = resources.files("rlscaler_operator").joinpath(file).read_text(encoding="utf-8")
    role: dict[str, Any] = next(role for role in yaml.safe_load_all(text) if role["metadata"]["name"] == name)
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    yield Act(verb, group, resource)
