"""What the chart renders, without a cluster."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
import yaml

from rlscaler_dev.generate.definition import POLICY
from rlscaler_dev.generate.recording import recorded
from rlscaler_operator.settings import Settings
from tests.chart.charts import CHART, NAMESPACE, RELEASE, SETS, find, kinds, template, values
from tests.harness.helm import HelmError
from tests.harness.setup import REPOSITORY

WITH_PODS = ("Deployment", "DaemonSet", "Job", "Pod", "StatefulSet")


@pytest.mark.parametrize("chosen", SETS)
def test_lint(helm, chosen):
    assert "0 chart(s) failed" in helm.run("lint", "--strict", str(CHART), *SETS[chosen])


def test_version_is_the_packages():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == project["version"]


@pytest.mark.parametrize("chosen", SETS)
def test_every_variable_is_a_setting(helm, chosen):
    for body in template(helm, *SETS[chosen]):
        pod = body["spec"].get("template", body)["spec"] if body["kind"] in ("Deployment", "Job", "Pod") else {}
        for container in pod.get("containers", ()):
            names = [entry["name"] for entry in container["env"]]
            assert len(names) == len(set(names))
            for name in names:
                assert name.removeprefix("RLSCALER_").lower() in Settings.model_fields, name


def test_settings_are_what_the_values_say(helm, monkeypatch):
    deployment = find(template(helm, *SETS["production"]), "Deployment", RELEASE)
    for entry in deployment["spec"]["template"]["spec"]["containers"][0]["env"]:
        monkeypatch.setenv(entry["name"], entry.get("value", "rlscaler-0"))
    settings = Settings()
    assert settings.prometheus_url == "https://prometheus.monitoring.svc:9443/tenant"
    assert settings.allowed_prometheus_urls == ("https://prometheus.gpu-team.svc",)
    assert (settings.scrape_interval_seconds, settings.resource_scrape_interval_seconds) == (30, 15)
    assert (settings.shards, settings.lease_namespace, settings.lease_name) == (3, NAMESPACE, RELEASE)
    assert (settings.audit_max_bytes, settings.audit_files) == (64 * 2**20, 9)
    assert (settings.metrics_host, settings.metrics_port) == ("0.0.0.0", 8080)
    assert (str(settings.policy_dir), str(settings.external_scaler_tls_dir)) == ("/policies", "/scaler-tls")
    assert (settings.external_scaler_port, settings.write_concurrency) == (9666, 32)


RESTRICTED_V2 = {"podSecurity": dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))}
"""OpenShift's SecurityContextConstraints refuse a pod that names a user or a group beyond those of its namespace."""

SCHEDULER = {"enabled": True, "latency": {"enabled": True, "targets": {"a": "http://a"}}}


@pytest.mark.parametrize(
    ("chart", "more"),
    [
        (CHART, {"scheduler": SCHEDULER}),
        (CHART.parent / "rlscaler-demo", {"load": {"enabled": True}, "prometheus": {"enabled": True}}),
    ],
    ids=["rlscaler", "demo"],
)
def test_every_pod_is_what_openshifts_restricted_v2_lets_in(helm, tmp_path, chart, more):
    objects = template(helm, *values(RESTRICTED_V2 | more, tmp_path), chart=chart)
    pods = [body["spec"].get("template", body)["spec"] for body in objects if body["kind"] in WITH_PODS]
    assert len(pods) >= 3
    for pod in pods:
        assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        assert all(volume.keys().isdisjoint({"hostPath", "nfs"}) for volume in pod.get("volumes", ()))
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            security = container["securityContext"]
            assert not security["allowPrivilegeEscalation"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert not security.keys() & {"runAsUser", "runAsGroup", "privileged"}
            assert not any("hostPort" in port for port in container.get("ports", ()))


def test_audit_log_on_standard_output(helm, tmp_path):
    objects = template(helm, *values({"auditLog": {"stdout": True}}, tmp_path))
    pod = find(objects, "Deployment", RELEASE)["spec"]["template"]["spec"]
    assert {"name": "RLSCALER_AUDIT_LOG", "value": "/dev/stdout"} in pod["containers"][0]["env"]
    assert [volume["name"] for volume in pod["volumes"]] == ["tmp"]


def test_definition_is_the_models_and_stays(helm):
    crd = find(template(helm), "CustomResourceDefinition", "rlscalingpolicies.rlscaler.io")
    assert crd["spec"] == POLICY.manifest()["spec"]
    assert crd["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    crd = find(template(helm, "--set", "crds.keep=false"), "CustomResourceDefinition", crd["metadata"]["name"])
    assert "annotations" not in crd["metadata"]


def ports(objects):
    rules = find(objects, "NetworkPolicy", "rlscaler")["spec"]["ingress"]
    return {rule["ports"][0]["port"]: rule.get("from") for rule in rules}


def test_the_external_scaler_is_reached_only_by_whom_values_let_in(helm):
    scaler = ("--set", "externalScaler.enabled=true", "--set", "externalScaler.tlsSecret=scaler")
    assert set(ports(template(helm))) == {"metrics"}
    assert set(ports(template(helm, *scaler))) == {"metrics"}
    keda = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}
    opened = ("--set-json", f"networkPolicy.externalScalerFrom=[{json.dumps(keda)}]")
    assert ports(template(helm, *scaler, *opened))["scaler"] == [keda]


def test_the_documentation_names_the_services_that_the_chart_makes(helm):
    scaler = ("--set", "externalScaler.enabled=true", "--set", "externalScaler.tlsSecret=scaler")
    objects = template(helm, *scaler)
    made = {f"{body['metadata']['name']}.rlscaler-system" for body in objects if body["kind"] == "Service"}
    text = "".join(path.read_text() for path in (REPOSITORY / "docs").rglob("*.md"))
    named = set(re.findall(r"\b([a-z0-9-]+\.rlscaler-system)(?=[:\s\"`.]|\.svc)", text))
    assert named
    assert named <= made


def test_monitoring_only_where_its_api_is(helm):
    objects = kinds(template(helm, monitoring=False))
    assert not {"ServiceMonitor", "PodMonitor", "PrometheusRule"} & set(objects)
    assert {"ServiceMonitor", "PrometheusRule"} <= set(kinds(template(helm)))
    objects = kinds(template(helm, *SETS["production"]))
    assert "PodMonitor" in objects
    assert "ServiceMonitor" not in objects


def test_alerts_link_to_the_runbooks_that_values_name(helm):
    links = re.compile(r"runbook_url: (\S+?)/[\w-]+\.html$", re.MULTILINE)
    option = ("--set", "monitoring.prometheusRule.runbookBaseUrl=https://wiki/rl/")
    rule = find(template(helm, *option), "PrometheusRule", "rlscaler-rlscaler")
    found = links.findall(text := yaml.safe_dump(rule, width=1000))
    assert set(found) == {"https://wiki/rl"}
    assert len(found) == text.count("alert:")
    assert "runbook: " not in text
    plain = yaml.safe_load((CHART / "rules" / "rlscaler.yaml").read_text())
    assert find(template(helm), "PrometheusRule", "rlscaler-rlscaler")["spec"] == plain
    assert "://" not in yaml.safe_dump(plain)


def test_dashboards_are_whole(helm):
    objects = template(helm, *SETS["production"])
    for path in (CHART / "dashboards").glob("*.json"):
        found = find(objects, "ConfigMap", f"rlscaler-dashboard-{path.stem}", "monitoring")
        assert found["data"][path.name] == path.read_text().strip()
        assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert found["metadata"]["annotations"] == {"grafana_folder": "Autoscaling"}


@pytest.mark.parametrize(
    ("url", "allowed", "ports"),
    [
        ("http://prometheus:9090", [], [9090]),
        ("https://thanos.example.org", ["http://mimir/prometheus"], [9090, 443, 80]),
        ("http://[fd00::1]:9091/x", [], [9090, 9091]),
    ],
)
def test_network_policy_opens_the_ports_of_prometheus(helm, tmp_path, url, allowed, ports):
    objects = template(helm, *values({"prometheus": {"url": url, "allowedUrls": allowed}}, tmp_path))
    egress = find(objects, "NetworkPolicy", RELEASE)["spec"]["egress"]
    assert [entry["port"] for entry in egress[2]["ports"]] == ports


def test_names_follow_the_release(helm):
    text = helm.run("template", "prod", str(CHART), "--namespace", "ops", "--set", "operator.shards=2")
    names = {body["metadata"]["name"] for body in yaml.safe_load_all(text) if body}
    checks = {"rlscaler-pauses", "rlscaler-replicas", "rlscaler-one-autoscaler", "rlscaler-envelope"}
    shared = {"rlscalingpolicies.rlscaler.io", *checks}
    assert {name for name in names - shared if not name.startswith("prod-rlscaler")} == set()
    assert {"prod-rlscaler", "prod-rlscaler-lease"} <= names


def test_notes_name_what_the_user_named(helm, tmp_path):
    options = values({"watchNamespaces": ["shop"], "fullnameOverride": "scaler"}, tmp_path)
    text = helm.run("install", "mine", str(CHART), "--namespace", "ops", "--dry-run=client", *options)
    notes = text.partition("NOTES:")[2]
    assert "kubectl rollout status deployment/scaler -n ops" in notes
    assert "helm test mine -n ops" in notes
    assert "rlscaler init --from-hpa NAME -n shop --out policy.yaml" in notes
    assert "rlscaler preflight policy.yaml -n shop --operator ops/scaler --lease-name scaler" in notes
    assert "Left out, because this cluster does not know the API monitoring.coreos.com/v1" in notes
    assert "PrometheusRule, ServiceMonitor." in notes


@pytest.mark.parametrize(
    ("url", "forward", "asked"),
    [
        ("http://prometheus-operated.monitoring.svc:9090", "-n monitoring svc/prometheus-operated 9090:9090 &", None),
        ("http://vm.metrics:8428/", "-n metrics svc/vm 9090:8428 &", None),
        ("https://thanos.example.org/api", None, "https://thanos.example.org/api"),
    ],
)
def test_notes_forward_a_port_to_the_prometheus_of_the_values(helm, tmp_path, url, forward, asked):
    options = values({"prometheus": {"url": url, "scrapeIntervalSeconds": 30}}, tmp_path)
    notes = helm.run("install", "mine", str(CHART), "--dry-run=client", *options).partition("NOTES:")[2]
    assert ("kubectl port-forward" in notes) == (forward is not None)
    assert forward is None or f"kubectl port-forward {forward}" in notes
    assert f"--scrape-interval 30 --prometheus-url {asked or 'http://127.0.0.1:9090'}\n" in notes


def test_error_of_an_unknown_value_is_helms(helm):
    with pytest.raises(HelmError, match="replicaCount"):
        template(helm, "--set", "replicaCount=3")


def recording(objects):
    return {one["metadata"]["name"]: one for one in objects if "-recording-" in one["metadata"]["name"]}


@pytest.mark.parametrize("chosen", SETS)
def test_nothing_is_recorded_unless_asked_for(helm, chosen):
    assert not recording(template(helm, *SETS[chosen]))


def test_presets_that_are_named_are_recorded(helm, tmp_path):
    rules = {"presets": ["vllm", "istio"], "labels": {"release": "prometheus"}}
    asked = values({"monitoring": {"recordingRules": rules}}, tmp_path)
    found = recording(template(helm, *asked))
    assert list(found) == [f"{RELEASE}-recording-vllm", f"{RELEASE}-recording-istio"]
    for preset in ("vllm", "istio"):
        body = found[f"{RELEASE}-recording-{preset}"]
        assert body["spec"] == yaml.safe_load((CHART / "recording" / f"{preset}.yaml").read_text())
        assert body["metadata"]["labels"]["release"] == "prometheus"
    assert not recording(template(helm, *asked, monitoring=False))


def test_a_preset_without_rules_is_refused(helm, tmp_path):
    with pytest.raises(HelmError, match="recordingRules"):
        template(helm, *values({"monitoring": {"recordingRules": {"presets": ["envoy"]}}}, tmp_path))


def test_every_preset_that_can_be_recorded_may_be_named():
    schema = json.loads((CHART / "values.schema.json").read_text())
    rules = schema["properties"]["monitoring"]["properties"]["recordingRules"]["properties"]["presets"]
    assert rules["items"]["enum"] == recorded() == sorted_like(path.stem for path in (CHART / "recording").iterdir())


def sorted_like(names):
    """The names in the order of the table of presets."""
    return sorted(names, key=recorded().index)
