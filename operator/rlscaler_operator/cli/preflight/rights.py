"""Preflight of rights: the API server accepts the policy, an operator runs, and its account may do its work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlscaler_core.api import RLScalingPolicy
from rlscaler_operator.cli.checks import Check
from rlscaler_operator.cli.objects import FIELD_MANAGER
from rlscaler_operator.cli.verify import ACCOUNTS, Act, lease, needed, permissions
from rlscaler_operator.cluster.kube import APPLY_PATCH, Kube, object_path, policy_path
from rlscaler_operator.cluster.shards import lease_names
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.settings import Settings


async def check_accepted(kube: Kube, body: Mapping[str, Any], namespace: str) -> Check:
    """Send the policy as a dry run, through the schema, the rules and the admission policies of the cluster."""
    name = body["metadata"]["name"]
    title = f"the API server takes RLScalingPolicy {namespace}/{name} (dry run)"
    path = policy_path((namespace, name))
    metadata = {key: value for key, value in body["metadata"].items() if key in ("name", "labels", "annotations")}
    plain = {key: body[key] for key in ("apiVersion", "kind", "spec")}
    plain["metadata"] = {**metadata, "namespace": namespace}
    try:
        await kube.request(
            "PATCH", path, plain, content_type=APPLY_PATCH, fieldManager=FIELD_MANAGER, force="true", dryRun="All"
        )
    except KubeError as error:
        remedies = {
            403: ": ask for the right to patch it",
            404: f": create the namespace, or name another with -n: {namespace}",
        }
        return Check(title, f"{error}{remedies.get(error.status, '')}", "accepted", stops=error.status != 403)
    return Check(title, about="accepted")


async def check_operator(kube: Kube, settings: Settings, account: str, policy: RLScalingPolicy) -> list[Check]:
    """Look for an operator under `account`, NAMESPACE/SERVICEACCOUNT, and check its rights for the policy."""
    namespace, _, name = account.partition("/")
    title = f"the operator's ServiceAccount {account} exists"
    try:
        await kube.get(object_path("v1", "serviceaccounts", namespace, name))
    except KubeError as error:
        if error.status == 404:
            text = "it does not: install the chart (docs/operations/install.md), or name it with --operator"
            return [Check(title, text, "operator")]
        return [Check(title, f"not checked: {error}", "operator", stops=False)]
    leases = [await lease(kube, settings, lease_name) for lease_name in lease_names(settings)]
    acts = [*needed(settings), *_named(policy)]
    return [Check(title, about="operator"), *leases, await permissions(kube, acts, f"{ACCOUNTS}{namespace}:{name}")]


def _named(policy: RLScalingPolicy) -> list[Act]:
    """Return the acts of reading the Secrets and the ConfigMap that the policy names."""
    source, auth = policy.spec.policy.config_map, policy.spec.metrics.prometheus.auth
    space = policy.metadata.namespace
    acts = [Act("get", "", "configmaps", space, source.name)] if source is not None else []
    keys = [auth.bearer_token] if auth is not None else []
    if auth is not None and auth.basic is not None:
        keys += [auth.basic.username, auth.basic.password]
    if auth is not None and auth.tls is not None:
        keys += [auth.tls.ca, auth.tls.certificate, auth.tls.private_key]
    if auth is not None and auth.tenant is not None:
        keys.append(auth.tenant.id)
    names = dict.fromkeys(key.name for key in keys if key is not None)
    return acts + [Act("get", "", "secrets", space, name) for name in names]
