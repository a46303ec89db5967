"""What the operator may do in the demo's cluster: its own rules, each granted only where it is needed.

It acts with a ServiceAccount's token, so a rule that is missing shows.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.demo.manifests import OPERATOR, OPERATOR_NAMESPACE, PART_OF, Manifest, namespace
from rlscaler_dev.demo.settings import NAMESPACE

Rule = dict[str, Any]

WHERE = {"ClusterRole": NAMESPACE, "Role": OPERATOR_NAMESPACE}
"""Where each is granted: no right of the operator reaches beyond the namespace of the policies and its own."""


def operator_roles() -> list[Manifest]:
    """The operator's own roles as they ship: what it does to workloads, and its Lease."""
    spec = find_spec("rlscaler_operator")
    assert spec is not None
    assert spec.submodule_search_locations
    return list(yaml.safe_load_all((Path(spec.submodule_search_locations[0]) / "rbac.yaml").read_text()))


def access() -> list[Manifest]:
    """The operator's namespace, its ServiceAccount, and the roles bound to that."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": OPERATOR, "namespace": OPERATOR_NAMESPACE, "labels": PART_OF},
    }
    return [
        namespace(OPERATOR_NAMESPACE),
        account,
        *(thing for role in operator_roles() for thing in _granted(WHERE[role["kind"]], role["rules"])),
    ]


def _granted(where: str, rules: list[Rule]) -> list[Manifest]:
    """A Role and its binding to the operator's ServiceAccount."""
    metadata = {"name": OPERATOR, "labels": PART_OF, "namespace": where}
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": OPERATOR},
            "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": OPERATOR_NAMESPACE}],
        },
    ]
