"""Preflight of the operator: does the API server take the policy, does an operator run, may its account do its work?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlscaler_core.api import GROUP, PLURAL, VERSION, RLScalingPolicy
from rlscaler_operator.cli.findings import Finding
from rlscaler_operator.cli.verify import ACCOUNTS, Act, lease, needed, permissions
from rlscaler_operator.cluster.kube import APPLY_PATCH, Kube, object_path
from rlscaler_operator.cluster.shards import lease_names
from rlscaler_operator.exceptions import KubeError
from rlscaler_operator.settings import Settings


async def check_accepted(kube: Kube, body: Mapping[str, Any], namespace: str) -> Finding:
    """Send the policy as a dry run: schema, rules and admission policies of the cluster have their say."""
    name = body["metadata"]["name"]
    what = f"the API server takes RLScalingPolicy {namespace}/{name} (dry run)"
    path = object_path(f"{GROUP}/{VERSION}", PLURAL, namespace, name)
    kept = {key: value for key, value in body["metadata"].items() if key in ("name", "labels", "annotations")}
    plain = {key: body[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {**kept, "namespace": namespace}}
    try:
        await kube.request(
            "PATCH", path, plain, content_type=APPLY_PATCH, fieldManager="rlscaler-cli", force="true", dryRun="All"
        )
    except KubeError as error:
        remedy = {
            403: "ask for the right to patch it",
            404: f"create the namespace, or name another with -n: {namespace}",
        }
        said = remedy.get(error.status, "")
        return Finding(what, f"{error}: {said}" if said else str(error), "accepted", stops=error.status != 403)
    return Finding(what, about="accepted")


async def check_operator(kube: Kube, settings: Settings, account: str, policy: RLScalingPolicy) -> list[Finding]:
    """Look for an operator under `account`, NAMESPACE/SERVICEACCOUNT, and ask what it may do for the policy."""
    space, _, name = account.partition("/")
    what = f"the operator's ServiceAccount {account} exists"
    try:
        await kube.get(object_path("v1", "serviceaccounts", space, name))
    except KubeError as error:
        if error.status == 404:
            text = "it does not: install the chart (docs/operations/install.md), or name it with --operator"
            return [Finding(what, text, "operator")]
        return [Finding(what, f"not checked: {error}", "operator", stops=False)]
    found = [Finding(what, about="operator")]
    found += [await lease(kube, settings, one) for one in lease_names(settings)]
    acts = [*needed(settings), *_named(policy)]
    may = await permissions(kube, acts, f"{ACCOUNTS}{space}:{name}")
    if may.trouble.startswith("the API server does not say"):
        may = Finding(may.what, f"not checked: {may.trouble}", may.about, stops=False)
    return [*found, may]


def _named(policy: RLScalingPolicy) -> list[Act]:
    """Reading what the policy names: Secrets and a ConfigMap, each by its name."""
    source, auth = policy.spec.policy.config_map, policy.spec.metrics.prometheus.auth
    space = policy.metadata.namespace
    acts = [Act("get", "", "configmaps", space, source.name)] if source is not None else []
    keys = [auth.bearer_token] if auth is not None else []
    if auth is not None and auth.basic is not None:
        keys += [auth.basic.username, auth.basic.password]
    if auth is not None and auth.tls is not None:
        keys += [auth.tls.ca, auth.tls.certificate, auth.tls.private_key]
    names = dict.fromkeys(key.name for key in keys if key is not None)
    return acts + [Act("get", "", "secrets", space, name) for name in names]
