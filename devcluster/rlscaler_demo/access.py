"""What the operator may do in the demo's cluster: its own rules, each granted only where it is needed.

It acts with a ServiceAccount's token, so a rule that is missing shows.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from .manifests import OPERATOR, OPERATOR_NAMESPACE, PART_OF, Manifest, namespace
from .settings import NAMESPACE

Rule = dict[str, Any]

CLUSTER_SCOPED = {"customresourcedefinitions", "namespaces"}
OWN_NAMESPACE = {"leases"}
"""Where a rule is granted goes by its resource; all others are granted in the namespace of the policies."""


def operator_rules() -> list[Rule]:
    """The rules of the operator's own ClusterRole, which says all that it may ever do."""
    spec = find_spec("rlscaler_operator")
    assert spec is not None
    assert spec.submodule_search_locations
    role = yaml.safe_load((Path(spec.submodule_search_locations[0]) / "rbac.yaml").read_text())
    return list(role["rules"])


def access() -> list[Manifest]:
    """The operator's namespace, its ServiceAccount, and the roles bound to that."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": OPERATOR, "namespace": OPERATOR_NAMESPACE, "labels": PART_OF},
    }
    rules = operator_rules()
    return [
        namespace(OPERATOR_NAMESPACE),
        account,
        *_granted("ClusterRole", None, [rule for rule in rules if CLUSTER_SCOPED & {*rule["resources"]}]),
        *_granted("Role", OPERATOR_NAMESPACE, [rule for rule in rules if OWN_NAMESPACE & {*rule["resources"]}]),
        *_granted(
            "Role", NAMESPACE, [rule for rule in rules if not (CLUSTER_SCOPED | OWN_NAMESPACE) & {*rule["resources"]}]
        ),
    ]


def _granted(kind: str, where: str | None, rules: list[Rule]) -> list[Manifest]:
    """A role and its binding to the operator's ServiceAccount."""
    metadata = {"name": OPERATOR, "labels": PART_OF, **({"namespace": where} if where else {})}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": kind, "name": OPERATOR},
            "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": OPERATOR_NAMESPACE}],
        },
    ]
