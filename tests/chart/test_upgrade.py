"""An upgrade from the first chart there was: its operator has written what the present one goes on with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.prometheus import Prometheus
from rlscaler_dev.generate.definition import POLICY
from tests.chart import accounts
from tests.chart.charts import CHART, RELEASE
from tests.chart.history import commits, files
from tests.chart.objects import DEFINITION, DEPLOYMENT, POLICIES, WAIT, delete, keeps, make_namespaces
from tests.harness.helm import Helm
from tests.harness.load import Exporter, Load
from tests.harness.operators import Operator
from tests.harness.waiting import until

Json = dict[str, Any]

OF_ANOTHER_TREE = """
import sys
sys.path[:0] = {folders!r}
from rlscaler_operator import commands
assert commands.__file__.startswith({folders[0]!r}), commands.__file__
commands.operator(sys.argv[2:])
"""
"""A program for `Operator`; the packages that it depends on are the installed ones."""

RULE = {"policy": {"bundled": "rule"}}
SPECS: dict[str, Json] = {
    "used": {**RULE, "mode": "Auto", "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}}},
    "compared": {**RULE, "promotion": {"require": "Evidence", "minDays": 5}},
    "lent": {**RULE, "mode": "Auto", "restoreOnDelete": True},
}
DAYS = 14
LITTLE = 'sum(rate(inference_requests_received_total{service="lent"}[8s])) < 6'
"""Fewer requests than two replicas answer."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The first source tree with a chart."""
    commit = commits("helm/rlscaler/Chart.yaml")[0]
    return files(commit, tmp_path / commit, "helm/rlscaler", "operator", "rl/rlscaler_rl")


@pytest.fixture
def account(tree: Path, live: Helm, kube: KubeClient, cluster: ClusterInfo, tmp_path: Path) -> Iterator[Path]:
    """That chart, installed; a kubeconfig of the account that it made."""
    make_namespaces(kube)
    live.run("install", RELEASE, str(tree / "helm" / "rlscaler"), *WAIT)
    kubeconfig = accounts.kubeconfig(kube, cluster, tmp_path)
    yield kubeconfig
    accounts.rlscaler("release", "--kubeconfig", str(kubeconfig))
    live.run("uninstall", RELEASE, *WAIT)
    delete(kube, DEFINITION)


@pytest.fixture
def loads(cluster: ClusterInfo) -> Iterator[dict[str, Load]]:
    """What arrives at each service: 24 requests/s, where 4 replicas answer 20."""
    exporter = Exporter()
    exporter.loads += [Load("workloads", name, 24) for name in SPECS]
    target = cluster.add_scrape_target("upgrade", exporter.address)
    yield {load.service: load for load in exporter.loads}
    target.unlink()
    exporter.close()


def status(kube: KubeClient, name: str) -> Json:
    found: Json = kube.get(f"{POLICIES}/{name}").get("status") or {}
    return found


def reported_by(operator: Operator, kube: KubeClient, name: str) -> Json | None:
    """The policy, once its last decision in the status is this operator's."""
    body = kube.get(f"{POLICIES}/{name}")
    ids = [decision["decision_id"] for decision in operator.decisions(name)]
    return body if body["status"]["lastDecision"]["id"] in ids else None


def replicas(kube: KubeClient, service: str) -> list[int]:
    deployments = "/apis/apps/v1/namespaces/workloads/deployments"
    return [kube.get(f"{deployments}/{service}-{pool}")["spec"]["replicas"] for pool in ("gpu", "cpu")]


def evidence() -> list[Json]:
    """Whole days on which the policy cost a fifth less; of too few requests to be held against a histogram."""
    today = datetime.now(UTC).date()
    return [
        {
            "date": (today - timedelta(days=DAYS - i)).isoformat(),
            "hours": 24,
            "requests": 400,
            "cost": 80 + i % 3,
            "otherCost": 100,
            "late": 0,
            "otherLate": 0,
        }
        for i in range(DAYS)
    ]


def changed(kube: KubeClient, path: str, body: Json) -> None:
    kube.merge(f"{POLICIES}/{path}", body)


def test_from_the_first_chart_and_its_operator(tree, account, start, loads, live, kube, cluster):
    earlier = ("-c", OF_ANOTHER_TREE.format(folders=[str(tree / "operator"), str(tree / "rl")]))
    for name, spec in SPECS.items():
        accounts.put_policy(kube, name, **spec)
    first = start(account, program=earlier)
    until(lambda: all(status(kube, name).get("history") for name in ("used", "lent")), 60)
    until(lambda: status(kube, "compared").get("promotion"))
    assert first.stop() == 0
    changed(kube, "compared/status", {"status": {"promotion": {"evidence": evidence()}}})
    second = start(account, program=earlier)
    until(lambda: status(kube, "compared")["promotion"]["state"] == "Ready", 60)
    kept = (DEFINITION, DEPLOYMENT, *(f"{POLICIES}/{name}" for name in SPECS))
    uids = {path: kube.get(path)["metadata"]["uid"] for path in kept}
    before = {name: kube.get(f"{POLICIES}/{name}") for name in SPECS}

    live.run("upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", *WAIT)
    present = start(account)
    until(lambda: "standing by" in present.log.read_text(), 60)
    assert second.stop() == 0
    loads["used"].rate = loads["compared"].rate = 45
    loads["lent"].rate = 3
    after = {name: until(lambda name=name: reported_by(present, kube, name), 60) for name in SPECS}

    assert {path: kube.get(path)["metadata"]["uid"] for path in kept} == uids
    assert kube.get(DEFINITION)["spec"]["versions"][0]["schema"] == POLICY.manifest()["spec"]["versions"][0]["schema"]
    for name in SPECS:
        assert keeps(after[name]["spec"], before[name]["spec"])
    assert after["lent"]["metadata"]["finalizers"] == before["lent"]["metadata"]["finalizers"] == [accounts.FINALIZER]
    for name in ("used", "lent"):
        was, now = before[name]["status"], after[name]["status"]
        assert now["originals"] == was["originals"]
        assert is_continued(was["history"], now["history"])
    for pool, remembered in before["used"]["status"]["stabilization"].items():
        entries = after["used"]["status"]["stabilization"][pool]["recommendations"]
        assert remembered["recommendations"]
        assert [entry for entry in remembered["recommendations"] if entry not in entries] == []
    # What was collected is of the decisions of another observation contract: it is no evidence for the present ones.
    was, now = before["compared"]["status"]["promotion"], after["compared"]["status"]["promotion"]
    assert was["evidence"][:DAYS] == evidence()
    assert now["basis"] != was["basis"]
    assert (now["state"], [day for day in now.get("evidence") or [] if day in evidence()]) == ("Collecting", [])
    assert present.stop() == 0
    # A verdict needs days whose latency was measured, which the first operator did not know.
    measured = dict.fromkeys(("late", "lateAtMost", "modelledLate"), 0)
    measured |= {"requests": 400, "modelledRequests": 400, "windows": 24, "agreeing": 24}
    days = [day | {"measured": measured} for day in evidence()]
    changed(kube, "compared/status", {"status": {"promotion": {"evidence": days}}})
    present = start(account)
    until(lambda: status(kube, "compared")["promotion"]["state"] == "Ready", 60)

    # It acts under the rights of the present chart: on the load, on the evidence, on what was found before any change.
    until(lambda: sum(replicas(kube, "used")) >= 9)
    changed(kube, "compared", {"spec": {"mode": "Auto"}})
    until(lambda: status(kube, "compared")["promotion"]["state"] == "Promoted")
    until(lambda: sum(replicas(kube, "compared")) >= 9)
    verify = accounts.rlscaler("verify", "--kubeconfig", str(account), "--prometheus-url", cluster.prometheus_url)
    assert verify.returncode == 0, verify.stdout + verify.stderr
    until(lambda: Prometheus(cluster.prometheus_url).instant(LITTLE))
    delete(kube, f"{POLICIES}/lent")
    assert replicas(kube, "lent") == [2, 2]
    assert "orbidden" not in present.log.read_text()
    for name in SPECS:
        accounts.drop_policy(kube, name)


def is_continued(was: list[Json], now: list[Json]) -> bool:
    """Newest first: what was there follows on what is new, as far as it fits in."""
    begin = next((i for i, decision in enumerate(now) if decision == was[0]), len(now))
    return begin < len(now) and now[begin:] == was[: len(now) - begin]
