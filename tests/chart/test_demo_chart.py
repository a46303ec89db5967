"""The demo's chart: linted, rendered, refused where it is mistyped, taken by a real API server."""

from __future__ import annotations

import pytest
import yaml

from tests.chart.charts import find, kinds, template
from tests.chart.kubectl import Kubectl
from tests.harness.helm import HelmError
from tests.harness.setup import REPOSITORY

CHART = REPOSITORY / "helm" / "rlscaler-demo"
SETS = {
    "default": (),
    "load": ("--set", "load.enabled=true,load.pattern=ramp,load.workers=3"),
    "hpa": ("--set", "hpa.enabled=true,gateway.enabled=false,prometheus.enabled=false"),
}


@pytest.mark.parametrize("chosen", SETS)
def test_lint(helm, chosen):
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), *SETS[chosen])


def test_both_pools_run_one_replica_of_their_flavour(helm):
    objects = template(helm, chart=CHART)
    for pool, mean in (("gpu", "--mean-ms=50"), ("cpu", "--mean-ms=250")):
        deployment = find(objects, "Deployment", f"chat-{pool}")
        assert "replicas" not in deployment["spec"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["args"][:3] == ["service", "pod", f"--flavour={pool}"]
        assert mean in container["args"]
    assert (
        find(objects, "Deployment", "chat-gpu")["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][
            "nvidia.com/gpu"
        ]
        == 1
    )
    (rule,) = find(objects, "HTTPRoute", "chat")["spec"]["rules"]
    assert [backend["weight"] for backend in rule["backendRefs"]] == [833, 167]


def test_the_policy_scales_what_the_chart_installs(helm):
    policy = yaml.safe_load((CHART / "examples" / "policy.yaml").read_text())
    objects = template(helm, chart=CHART)
    for pool in ("gpu", "cpu"):
        find(objects, "Deployment", policy["spec"]["targets"][pool]["deployment"])
    route = policy["spec"]["placement"]["httpRoute"]
    (rule,) = find(objects, "HTTPRoute", route["name"])["spec"]["rules"]
    assert [backend["name"] for backend in rule["backendRefs"]] == [route["gpuBackend"], route["cpuBackend"]]


def test_locust_is_there_when_load_is_asked_for(helm):
    assert not any("load" in body["metadata"]["name"] for body in template(helm, chart=CHART))
    objects = template(helm, *SETS["load"], chart=CHART)
    assert find(objects, "Deployment", "rlscaler-load-worker")["spec"]["replicas"] == 3
    settings = find(objects, "ConfigMap", "rlscaler-load")["data"]
    assert (settings["RLSCALER_PATTERN"], settings["RLSCALER_WORKERS"]) == ("ramp", "3")


def test_autoscalers_take_the_policys_place(helm):
    objects = template(helm, *SETS["hpa"], chart=CHART)
    assert kinds(objects) == ["Deployment", "HorizontalPodAutoscaler", "Service"]
    metrics = find(objects, "HorizontalPodAutoscaler", "chat-gpu")["spec"]["metrics"]
    assert metrics[0]["pods"]["metric"]["name"] == "DCGM_FI_DEV_GPU_UTIL"


def test_no_pod_runs_with_more_rights_than_it_needs(helm):
    for body in template(helm, *SETS["load"], chart=CHART):
        if body["kind"] != "Deployment":
            continue
        pod = body["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("load.patern=spike", "patern"),
        ("load.pattern=square", "pattern"),
        ("gpu.requestsPerSecond=0", "requestsPerSecond"),
    ],
)
def test_a_wrong_value_is_named(helm, value, named):
    with pytest.raises(HelmError, match=named):
        template(helm, "--set", value, chart=CHART)


@pytest.mark.parametrize("chosen", SETS)
def test_every_object_is_taken(helm, cluster, kube, chosen):
    """By a server without the Gateway API, with strict validation of fields."""
    objects = template(helm, *SETS[chosen], "--set", "gateway.enabled=false", chart=CHART)
    apply = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    told, warned = Kubectl(cluster.kubeconfig)(*apply, text=yaml.safe_dump_all(objects))
    assert warned == ""
    assert told.count("serverside-applied (server dry run)") == len(objects)
