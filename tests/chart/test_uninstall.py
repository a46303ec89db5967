"""Release, policies, their definition and their namespace go in any order, and nothing hangs.

The hook's Job is only played here: its command runs beside it. With real containers: tests/e2e/test_chart.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart import accounts
from tests.chart.charts import CHART, RELEASE
from tests.chart.kubectl import Kubectl
from tests.chart.objects import DEFINITION, POLICIES, SELECTOR, WAIT, delete, make_namespaces
from tests.harness.waiting import until

WORKLOADS = "/api/v1/namespaces/workloads"

ORDERS = (
    ("release", "definition", "namespace"),
    ("policy", "release", "definition"),
    ("definition", "namespace", "release"),
    ("namespace", "release", "definition"),
)
"""Whatever goes first, everything else is still there."""


@pytest.fixture
def account(live, kube, cluster, tmp_path) -> Iterator[Path]:
    """The chart, installed; a kubeconfig of the account that it made."""
    make_namespaces(kube)
    live.run("install", RELEASE, str(CHART), *WAIT)
    yield accounts.kubeconfig(kube, cluster, tmp_path)
    live.run("uninstall", RELEASE, *WAIT, "--ignore-not-found")


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_nothing_hangs(order, account, start, live, kube, cluster):
    operator = start(account)
    accounts.put_policy(kube, "chat", mode="Auto", restoreOnDelete=True)
    until(lambda: accounts.FINALIZER in accounts.finalizers(kube, "chat"), 60)

    def release() -> None:
        done = accounts.rlscaler("release", "--kubeconfig", str(account))
        assert done.returncode == 0, done.stderr
        live.run("uninstall", RELEASE, *WAIT)
        operator.stop()

    steps = {
        "release": release,
        "policy": lambda: delete(kube, f"{POLICIES}/chat"),
        "definition": lambda: delete(kube, DEFINITION),
        "namespace": lambda: delete(kube, WORKLOADS),
    }
    for step in order:
        steps[step]()
    until(lambda: Kubectl(cluster.kubeconfig).labelled(SELECTOR) == [])
    delete(kube, WORKLOADS)
