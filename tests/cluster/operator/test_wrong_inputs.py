"""What users get wrong in the first quarter of an hour, and what they are told: object, field and remedy, in one line.

What needs no cluster is in `tests/unit/live/test_wrong_options.py`.
`pytest -s` prints the whole table.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from rlscaler_live.cli import main
from rlscaler_loadgen.traces import Trace, write_trace

GPU = {"deployment": "chat-gpu", "maxReplicas": 8, "requestsPerSecond": 20}
CPU = {"deployment": "chat-cpu", "maxReplicas": 8, "requestsPerSecond": 4}
SPEC = {"targets": {"gpu": GPU, "cpu": CPU}, "slo": {"latencyMilliseconds": 1000}}


class Wrong(NamedTuple):
    """One wrong input."""

    words: str
    """The command; `{name}` are things of the fixture `places`."""
    code: int
    said: tuple[str, ...]
    """What the message has to have: the object, the field, the remedy."""
    policy: object = None
    """The file that {policy} names: a spec, or a text."""


def policy(**changes):
    return SPEC | changes


def metrics(**queries):
    return policy(metrics={"service": "chat", "queries": queries})


PRE = "preflight {policy} {here}"
SIM = "simulate {policy} --history {load} --out {out}"
TABLE = [
    Wrong("init {here}", 2, ("0 sources are named", "--from-hpa, --from-scaledobject and --deployment")),
    Wrong("init --from-hpa chat --deployment chat-gpu {here}", 2, ("2 sources are named", "name one of")),
    Wrong(
        "init --from-hpa caht {here}", 1, ("HorizontalPodAutoscaler {ns}/caht does not exist", "there are: chat", "-n")
    ),
    Wrong("init --from-scaledobject chat {here}", 1, ("ScaledObject {ns}/chat does not exist", "correct the name")),
    Wrong("init --deployment caht {here}", 1, ("Deployment {ns}/caht does not exist", "chat-cpu, chat-gpu")),
    Wrong(
        "init --deployment chat-gpu --cpu chat-gpu {here}", 2, ("--cpu chat-gpu", "name another, or leave --cpu out")
    ),
    Wrong(
        "init --deployment chat-gpu --cpu nope {here}", 1, ("Deployment {ns}/nope does not exist", "correct the name")
    ),
    Wrong("init --from-hpa chat --cpu chat-cpu {here}", 2, ("--cpu chat-cpu: is what HorizontalPodAutoscaler chat",)),
    Wrong(
        "init --from-hpa sets {here}", 1, ("spec.scaleTargetRef.kind is StatefulSet", "by kind, apiVersion and name")
    ),
    Wrong("init --deployment chat-gpu --out {out}/no/p.yaml {here}", 2, ("No such file", "name a file that can be")),
    Wrong("init --deployment chat-gpu {cluster} -n empty", 1, ("Deployment empty/chat-gpu", "there are: none", "-n")),
    Wrong("preflight {out}/none.yaml {here}", 2, ("none.yaml: No such file", "name a file with an RLScalingPolicy")),
    Wrong(PRE, 2, ("policy.yaml: not YAML", "line 1"), "spec: [targets"),
    Wrong(PRE, 2, ("holds 0 objects of kind RLScalingPolicy", "exactly one is needed"), "kind: Deployment"),
    Wrong(PRE, 2, ("metadata.name is missing", "give the RLScalingPolicy a name"), "kind: RLScalingPolicy\nspec: {}"),
    Wrong(PRE, 2, ("spec.mode = False", "quote Off in YAML"), policy(mode=False)),
    Wrong(PRE, 2, ("spec.slo: required: add it",), {"targets": {"gpu": GPU}}),
    Wrong(PRE, 2, ("spec.targets", "at least one target is needed: set gpu, cpu or both"), policy(targets={})),
    Wrong(PRE, 2, ("spec.metrics.queries.arrivals", "use one of 'arrivalRate'"), metrics(arrivals="up")),
    Wrong(PRE + " --prometheus-url prometheus:9090", 2, ("prometheus_url", "https?://"), SPEC),
    Wrong(PRE + " --scrape-interval 0", 2, ("scrape_interval_seconds", "greater than 0"), SPEC),
    Wrong("preflight {policy} {cluster} -n nowhere", 1, ("RLScalingPolicy nowhere/chat", "create the namespace"), SPEC),
    Wrong(
        PRE,
        1,
        ("Deployment caht-gpu (spec.targets.gpu.deployment)", "chat-cpu, chat-gpu", "correct the name"),
        policy(targets={"gpu": GPU | {"deployment": "caht-gpu"}}),
    ),
    Wrong(
        PRE + " --prometheus-url http://127.0.0.1:9",
        1,
        ("Prometheus answers at http://127.0.0.1:9", "Connection refused", "spec.metrics.prometheus.url"),
        SPEC,
    ),
    Wrong(PRE + " --prometheus-url http://{exporter}", 1, ("the answer is no JSON", "check the URL"), SPEC),
    Wrong(
        PRE,
        1,
        ("Secret {ns}/none does not exist", "create it, or correct spec.metrics.prometheus.auth"),
        policy(metrics={"prometheus": {"auth": {"bearerToken": {"name": "none", "key": "token"}}}}),
    ),
    Wrong(
        PRE,
        1,
        ("HTTPRoute none does not exist", "placement.httpRoute"),
        policy(placement={"httpRoute": {"name": "none"}}),
    ),
    Wrong(
        PRE,
        1,
        ("ConfigMap {ns}/none does not exist", "`rlscaler publish`, or correct spec.policy.configMap.name"),
        policy(policy={"configMap": {"name": "none", "key": "manifest.json"}}),
    ),
    Wrong(
        PRE,
        1,
        ("spec.policy.path needs an operator with --policy-dir", "policy.configMap"),
        policy(policy={"path": "a.json"}),
    ),
    Wrong(PRE, 1, ("arrival_rate", "parse error", "Prometheus refused the query"), metrics(arrivalRate="sum(rate(")),
    Wrong(
        PRE,
        1,
        ("spec.metrics.queries gives 2 samples", "aggregate it"),
        metrics(arrivalRate="inference_requests_received_total{namespace='{ns}'}"),
    ),
    Wrong(
        PRE,
        1,
        ("arrival_rate", "the label service of {ns} is chat: set spec.metrics.service"),
        policy(metrics={"service": "caht"}),
    ),
    Wrong(
        PRE,
        1,
        ("its largest bound is 10 s", "spec.slo.latencyMilliseconds", "add a bucket"),
        policy(slo={"latencyMilliseconds": 60_000}, metrics={"service": "chat"}),
    ),
    Wrong(SIM.replace("{load}", "{counter}"), 2, ("counter.csv", "counter's raw value", "rate(...)"), SPEC),
    Wrong(
        SIM.replace("{load}", "{there}"), 2, ("there.yaml", "no bins below the header", "export the series again"), SPEC
    ),
    Wrong(
        SIM,
        2,
        ("spec.targets.gpu.requestsPerSecond", "neither set nor learned", "measure and set it"),
        policy(targets={"gpu": {"deployment": "chat-gpu", "maxReplicas": 8}}),
    ),
    Wrong(
        SIM,
        2,
        ("spec.policy.configMap names a network", "--model"),
        policy(policy={"configMap": {"name": "mine", "key": "manifest.json"}}),
    ),
    Wrong(SIM + " --hpa {hpas}", 2, ("HorizontalPodAutoscaler other", "spec.maxReplicas = 3", "make them equal"), SPEC),
    Wrong(
        SIM + " --hpa {hpas}",
        2,
        ("no HorizontalPodAutoscaler in it scales lone", "spec.scaleTargetRef.name"),
        policy(targets={"gpu": GPU | {"deployment": "lone"}}),
    ),
    Wrong("status caht {here}", 1, ("RLScalingPolicy {ns}/caht does not exist", "correct the name", "-n")),
    Wrong("status chat -A {cluster}", 2, ("NAME and --all-namespaces exclude each other",)),
    Wrong("explain caht {here}", 1, ("RLScalingPolicy {ns}/caht does not exist", "correct the name")),
    Wrong("statsu {here}", 2, ("No such command 'statsu'", "did you mean status")),
    Wrong("status -o yaml {here}", 2, ("'yaml' is not one of 'text', 'json'", "--output")),
]


@pytest.fixture(scope="module")
def places(cluster, world, exporter, wait, tmp_path_factory):
    """What the words name: a namespace in which a service runs, and files."""
    folder = tmp_path_factory.mktemp("wrong")
    world.service("chat", rate=60)
    world.deployments("chat")
    for name, kind, scaled in (("chat", "Deployment", "chat-cpu"), ("sets", "StatefulSet", "chat")):
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": scaled}
        body = {"metadata": {"name": name}, "spec": {"scaleTargetRef": reference, "maxReplicas": 3}}
        world.kube.request("POST", world.path("horizontalpodautoscalers"), body)
    other = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "other"}}
    other["spec"] = {"scaleTargetRef": {"name": "chat-gpu"}, "maxReplicas": 3}
    (folder / "hpas.yaml").write_text(yaml.safe_dump(other))
    (folder / "there.yaml").write_text("there\n")
    write_trace(folder / "load.csv", Trace(np.full(200, 20.0), 60.0))
    write_trace(folder / "counter.csv", Trace(1000.0 * np.arange(400), 60.0))
    wait(lambda: world.get("deployments", "chat-gpu")["status"].get("readyReplicas"))
    near = f"--kubeconfig {cluster.kubeconfig}"
    return {
        "here": f"{near} -n {world.namespace}",
        "cluster": near,
        "ns": world.namespace,
        "prometheus": cluster.prometheus_url,
        "exporter": exporter.address,
        "out": str(folder),
        **{path.stem: str(path) for path in folder.iterdir()},
    }


def filled(text: str, places: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: places.get(found[1], found[0]), text)


def test_there_are_forty_of_them():
    assert len(TABLE) >= 40


@pytest.mark.parametrize("wrong", TABLE, ids=[f"{i}-{one.words.split()[0]}" for i, one in enumerate(TABLE, 1)])
def test_object_field_and_remedy_are_named_in_one_line(wrong, places, tmp_path, wait):
    path = tmp_path / "policy.yaml"
    body = {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingPolicy", "metadata": {"name": "chat"}}
    text = wrong.policy if isinstance(wrong.policy, str) else yaml.safe_dump(body | {"spec": wrong.policy})
    path.write_text(filled(text, places))
    words = filled(wrong.words, {**places, "policy": str(path)}).split()
    if words[0] == "preflight" and "--prometheus-url" not in words:
        words += ["--prometheus-url", places["prometheus"]]
    if words[0] == "preflight" and "--scrape-interval" not in words:
        words += ["--scrape-interval", "2"]

    said = [filled(one, places) for one in wrong.said]

    def attempt():
        done = CliRunner(env={"COLUMNS": "200"}).invoke(main, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done if any(all(one in line for one in said) for line in lines(done.output)) else None

    done = attempt()
    if done is None:  # Prometheus has not scraped for a whole window yet
        done = wait(attempt, 30) if words[0] == "preflight" else attempt()
    assert done is not None, CliRunner(env={"COLUMNS": "200"}).invoke(main, words).output
    assert done.exit_code == wrong.code, done.output
    assert "Traceback" not in done.output
    (line,) = [line for line in lines(done.output) if all(one in line for one in said)]
    shown = filled(wrong.words, {"here": "", "cluster": ""}).replace("  ", " ")
    print(f"| `{shown.strip()}` | {wrong.code} | {line} |")


def lines(output: str) -> list[str]:
    """The messages of an answer: that of an error, and each thing that failed with what is wrong with it."""
    given = output.splitlines()
    errors = [line.removeprefix("Error: ") for line in given if line.startswith("Error: ")]
    failed = [
        f"{line.removeprefix('FAIL ')}: {given[i + 1].strip()}"
        for i, line in enumerate(given[:-1])
        if line.startswith("FAIL")
    ]
    return errors + failed
