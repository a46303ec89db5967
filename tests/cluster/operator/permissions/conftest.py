"""An operator's token that may do what ships in one namespace and read one Secret there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness import setup
from tests.harness.attempts import Token, core


@pytest.fixture(scope="module")
def account(request) -> str:
    """Name of the service account, one for each file, since files may share a cluster."""
    return f"tried-{request.path.stem.replace('_', '-')}"


@pytest.fixture(scope="module")
def theirs(kube, account) -> str:
    """A namespace that the operator does not serve."""
    kube.request("POST", "/api/v1/namespaces", {"metadata": {"name": f"{account}-not-served"}})
    return f"{account}-not-served"


@pytest.fixture(scope="module")
def token(cluster, kube, world, account, theirs) -> Iterator[Token]:
    """May do what ships in one namespace, and read one Secret there."""
    setup.permit(kube, account, world.namespace)
    one = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["given"], "verbs": ["get"]}
    setup.grant(kube, account, "given", [one], world.namespace)
    for namespace in (world.namespace, theirs):
        for name in ("given", "theirs"):
            kube.request("POST", core(namespace, "secrets"), {"metadata": {"name": name}})
    world.deployments("chat")
    world.policy("chat", mode="Off")
    names = {"own": world.namespace, "theirs": theirs, "account": account}
    tried = Token(cluster, setup.token(kube, account=account), names)
    yield tried
    tried.close()
