"""The operator's token ends while it runs, and a new one appears in its kubeconfig some time later."""

from __future__ import annotations

import pytest

from rlscaler_dev.cluster.kube import KubeClient
from tests.chaos.conftest import Line
from tests.chaos.trial import BUSY, CALM, Trial
from tests.harness import setup
from tests.harness.waiting import looks, until

SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.mark.chaos
def test_token_expires(start, world, replicas, cluster, kube: KubeClient, line: Line):
    """A token that is bound to an object ends with it: the API server itself answers 401."""
    line.fault = "API server: token expired, renewed after 15 s"
    load = world.service("token", rate=CALM)
    world.deployments("token", gpu=3, cpu=4)
    world.policy("token", senseSeconds=2)
    secret = kube.request("POST", SECRETS, {"metadata": {"name": world.namespace}})["metadata"]
    bound = {"apiVersion": "v1", "kind": "Secret", "name": secret["name"], "uid": secret["uid"]}
    operator = start(token=setup.token(kube, bound))
    trial = Trial.settled(world, replicas, load, line)
    kube.request("DELETE", f"{SECRETS}/{secret['name']}")
    until(lambda: "Unauthorized" in operator.log.read_text())
    load.rate = BUSY
    for _ in looks(15):
        pass
    assert operator.process.poll() is None, operator.log.read_text()[-3000:]
    setup.write_kubeconfig(operator.kubeconfig, cluster.kubeconfig, setup.token(kube))
    trial.check(trial.followed(BUSY))
    assert operator.process.poll() is None
    until(lambda: world.condition("token", "Ready")[0] == "True")
