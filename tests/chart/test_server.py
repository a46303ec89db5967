"""Every rendered object, taken by the real API server as a dry run with strict validation of fields."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from rlscaler_dev.cluster.kube import KubeClient
from tests.chart.charts import NAMESPACE, RELEASE, SETS, template
from tests.chart.kubectl import Kubectl
from tests.chart.objects import make_namespaces


@pytest.fixture(scope="module", autouse=True)
def namespaces(kube: KubeClient) -> Iterator[None]:
    """What a dry run looks up: namespaces, and the account of the Pod."""
    for name in ("team-a", "team-b", "gpu-team", "monitoring"):
        kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    make_namespaces(kube)
    kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": RELEASE, "namespace": NAMESPACE}})
    yield
    kube.delete(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{RELEASE}")


@pytest.mark.parametrize("chosen", SETS)
def test_every_object_is_taken(helm, cluster, chosen):
    """In a namespace that allows restricted pods only; a warning would say what violates that, or is deprecated."""
    objects = template(helm, *SETS[chosen])
    apply = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    told, warned = Kubectl(cluster.kubeconfig)(*apply, text=yaml.safe_dump_all(objects))
    assert warned == ""
    taken = [
        line.partition(" ")[0] for line in told.splitlines() if line.endswith("serverside-applied (server dry run)")
    ]
    assert len(taken) == len(objects)
    print(f"{chosen}: {len(taken)} objects", *taken, sep="\n  ")
