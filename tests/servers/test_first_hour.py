"""Take real servers under load the way of a newcomer: init, preflight, apply, Shadow with evidence, explain, simulate.

A day's load is played in `RLSCALER_SERVERS_MINUTES` (8). From an hour on the operator is as it ships, and Prometheus
scrapes every 15 s; in less time the windows of the calibration are shorter, and scrapes and Ray's exports closer.
`RLSCALER_SERVERS_ONLY` names some of llm, ray and llama, separated by commas. With `pytest -s` each command is printed
as it is typed, with its seconds and what it says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlscaler_core.api.promotion import EvidenceDay
from rlscaler_dev.cluster import binaries
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.progress import ConsoleReporter
from rlscaler_loadgen.traces import read_trace, write_trace
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS, agrees, is_calibrated
from tests.harness import setup
from tests.harness.control_plane import own_cluster
from tests.harness.load import Exporter
from tests.harness.operators import Operator
from tests.harness.scraping import prometheus
from tests.harness.waiting import looks, until
from tests.harness.world import World
from tests.servers.kubelet import kubelet
from tests.servers.running import PYTHON, VLLM_PYTHON, carried, load
from tests.servers.served import NAMESPACE, REAL_TIME, SCRAPE_SECONDS, SECONDS, SERVED, Served, Started
from tests.servers.shell import Shell

pytestmark = pytest.mark.skipif(
    not PYTHON or (not VLLM_PYTHON and any(one.name == "llm" for one in SERVED)),
    reason="RLSCALER_SERVERS_PYTHON or RLSCALER_VLLM_PYTHON names no Python with the servers",
)

WINDOW = WINDOW_SECONDS if REAL_TIME else SECONDS / 8
FASTER = (
    "import rlscaler_operator.shadow.evidence as one; one.WINDOW_SECONDS = {window}; "
    "from rlscaler_live.cli import main; main()"
)
QUIET_SHARE = 0.25
"""The load at night, of that at noon."""

COMPARED_SHARE = 0.7
"""Share of the time under load that has to have been compared."""

CLIENTS, LOAD_TEST_SECONDS = 8, 15.0
"""The load test by which the newcomer knows what a replica carries."""

TOKEN_MS = 50
"""Objective of each further token, where the policy is in tokens: a bound of vLLM's histogram."""

COLD_START_SECONDS = {"gpu": (20.0, 24.0), "cpu": (10.0, 12.0)}


def day(most: float) -> Callable[[float], float]:
    """The load of a day within `SECONDS`, in requests/s by the seconds since its begin."""
    return lambda at: most * (1 - (1 - QUIET_SHARE) * (0.5 + 0.5 * math.cos(2 * math.pi * at / SECONDS)))


@dataclass
class Played:
    """What was seen while the load was on."""

    world: World
    shell: Shell
    carries: dict[str, float]
    """Requests/s of one replica, by a load test."""

    def promotion(self, name: str) -> dict[str, Any]:
        return self.world.get("rlscalingpolicies", name).get("status", {}).get("promotion", {})

    def today(self, name: str) -> EvidenceDay | None:
        days = [EvidenceDay.model_validate(day) for day in self.promotion(name).get("evidence", [])]
        return days[-1] if days else None


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInfo]:
    with own_cluster("servers", cold_start_seconds=COLD_START_SECONDS) as started:
        yield started


@pytest.fixture(scope="module")
def played(cluster: ClusterInfo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """The servers' policies in Shadow, after a day's load was played."""
    tmp = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:
        kube = stack.enter_context(KubeClient.from_kubeconfig(cluster.kubeconfig))
        setup.install(kube)
        setup.permit(kube)
        kubeconfig = setup.write_kubeconfig(tmp / "kubeconfig", cluster.kubeconfig, setup.token(kube))
        exporter = Exporter()
        stack.callback(exporter.close)
        world = World(kube, NAMESPACE, exporter)
        pods = {one.name: deployed(world, one) for one in SERVED}
        started = {}
        for one in SERVED:
            (tmp / one.name).mkdir()
            started[one.name] = one.start(stack, tmp / one.name)
        carries = {
            one.name: carried(started[one.name].url, started[one.name].body, CLIENTS, LOAD_TEST_SECONDS)
            for one in SERVED
        }
        url = stack.enter_context(prometheus(scraped(stack, pods, started), scrape_seconds=SCRAPE_SECONDS))
        program = ("-c", FASTER.format(window=WINDOW))
        options = ("--lease-name", NAMESPACE, "--namespace", NAMESPACE, "--scrape-interval", str(SCRAPE_SECONDS))
        operator = Operator(kubeconfig, url, tmp, *options, program=program)
        stack.callback(operator.stop)
        for one in SERVED:
            here = started[one.name]
            stack.enter_context(load(here.url, here.body, day(one.busy * carries[one.name])))
        made = Played(world, shell(tmp, cluster, url), carries)
        for one in SERVED:
            begun(made, one)
        for _ in looks(SECONDS, every=10):
            assert operator.process.poll() is None, operator.log.read_text()[-4000:]
        # Evidence is written to the status every five minutes, so the last of it is seen after that time.
        until(lambda: all(seen(made.today(one.name)) for one in SERVED), 2 * WINDOW + 330)
        yield made


def scraped(stack: ExitStack, pods: dict[str, str], started: dict[str, Started]) -> list[tuple[str, dict[str, str]]]:
    """Targets with the labels that kube-prometheus-stack gives those of a ServiceMonitor, and the kubelet's."""
    named = {"namespace": NAMESPACE, "container": "app", "endpoint": "metrics"}
    targets = [
        (address, named | {"pod": pods[name], "service": name, "job": name} | dict(labels))
        for name, one in started.items()
        for address, labels in one.scraped
    ]
    by_pod = {pods[name]: ("app", one.pid) for name, one in started.items()}
    of_kubelet = {"namespace": "kube-system", "service": "prometheus-kubelet", "job": "kubelet"}
    return [*targets, (stack.enter_context(kubelet(by_pod, NAMESPACE)), of_kubelet)]


def shell(folder: Path, cluster: ClusterInfo, prometheus_url: str) -> Shell:
    with ConsoleReporter() as progress:
        kubectl = Path(binaries.provide(["kubectl"], progress)["kubectl"]["path"])
    return Shell(folder, kubectl.parent, {"KUBECONFIG": str(cluster.kubeconfig), "PROMETHEUS": prometheus_url})


def seen(day: EvidenceDay | None) -> bool:
    """Whether the status has what was compared while the load was on."""
    return day is not None and day.measured is not None and 3600 * day.hours > COMPARED_SHARE * SECONDS


def deployed(world: World, one: Served) -> str:
    """Make a Deployment that runs the server's image, and give the name of its one pod."""
    world.deployment(one.name, one.pool, gpus=1 if one.pool == "gpu" else 0)
    container = world.get("deployments", one.name)["spec"]["template"]["spec"]["containers"][0]
    pod = {"spec": {"containers": [container | {"image": one.image}]}}
    world.patch("deployments", one.name, {"spec": {"template": pod}})
    return str(until(lambda: ready_pod(world, one.name), 120))


def ready_pod(world: World, name: str) -> str:
    """The one pod of a Deployment that has rolled out."""
    status, pods = world.get("deployments", name).get("status", {}), world.pods(name)
    done = status.get("updatedReplicas") == status.get("readyReplicas") == len(pods) == 1
    return pods[0]["metadata"]["name"] if done else ""


def begun(played: Played, one: Served) -> None:
    """What a newcomer does: init, fill in what it marks as a guess, preflight until it is green, apply."""
    shell, file = played.shell, f"{one.name}.yaml"
    shell.run(f"rlscaler init --deployment {one.name} -n {NAMESPACE} --out {file}")
    policy = yaml.safe_load((shell.folder / file).read_text())
    spec, carries = policy["spec"], round(played.carries[one.name], 2)
    spec["slo"]["latencyMilliseconds"] = one.slo_ms
    if one.tokens is None:
        spec["targets"][one.pool]["requestsPerSecond"] = carries
        capacity = f"targets.{one.pool}.requestsPerSecond: {carries}"
    else:
        spec["targets"][one.pool].pop("requestsPerSecond", None)
        spec["capacity"] = {"unit": "tokens", "perReplica": {one.pool: round(carries * one.tokens, 1)}}
        spec["policy"] = {"bundled": "rule"}
        spec["slo"] |= {"signal": "ttft", "timePerOutputTokenMilliseconds": TOKEN_MS}
        capacity = f"slo.signal: ttft, slo.timePerOutputTokenMilliseconds: {TOKEN_MS}, policy.bundled: rule, "
        capacity += f"capacity: {spec['capacity']}"
    spec["metrics"] |= one.metrics
    (shell.folder / file).write_text(yaml.safe_dump(policy))
    more = "".join(f", metrics.{name}: {value}" for name, value in one.metrics.items())
    said = f"slo.latencyMilliseconds: {one.slo_ms}, {capacity}{more}"
    shell.say(f"# in {file}, the load test's and the user's: {said}")
    options = f"--scrape-interval {SCRAPE_SECONDS} --operator default/rlscaler --lease-name {NAMESPACE}"
    shell.again(f"rlscaler preflight {file} -n {NAMESPACE} --prometheus-url $PROMETHEUS {options}", 180, all_green)
    shell.run(f"kubectl apply -n {NAMESPACE} -f {file}")


def all_green(said: str) -> bool:
    """Preflight's table without a warning and a failure."""
    return not {"warn", "FAIL"} & {line.split()[0] for line in said.splitlines() if line.strip()}


@pytest.mark.parametrize("one", SERVED, ids=lambda one: one.name)
def test_shadows_evidence_counts(played: Played, one: Served) -> None:
    """All that the day would need but its 18 hours: it is compared throughout, and the model says what was measured."""
    played.shell.run(f"kubectl get rlsp {one.name} -n {NAMESPACE} -o jsonpath='{{.status.promotion.message}}'")
    day = played.today(one.name)
    assert day is not None
    assert day.measured is not None
    assert played.promotion(one.name)["reason"] == "CollectingEvidence"
    assert 3600 * day.hours > COMPARED_SHARE * SECONDS, "compared while the load was on"
    assert day.requests > 0.8 * one.busy * played.carries[one.name] * QUIET_SHARE * SECONDS
    assert day.measured.windows >= 4
    whole = day.model_copy(update={"requests": max(day.requests, 501.0), "hours": day.measured.windows * WINDOW / 3600})
    counts = is_calibrated(whole) if REAL_TIME else agrees(day.measured)
    played.shell.say(f"# {one.name}: windows {day.measured.windows}, alike {day.measured.agreeing}, counts: {counts}")
    assert counts, day.measured


@pytest.mark.parametrize("one", SERVED, ids=lambda one: one.name)
def test_its_decisions_are_explained(played: Played, one: Served) -> None:
    played.shell.run(f"rlscaler status {one.name} -n {NAMESPACE}")
    said = played.shell.run(f"rlscaler explain {one.name} -n {NAMESPACE}")
    assert "replicas" in said
    assert played.world.condition(one.name, "Ready")[0] == "True"
    assert played.world.get("deployments", one.name)["spec"]["replicas"] == 1, "Shadow changes nothing"


@pytest.mark.parametrize("one", SERVED, ids=lambda one: one.name)
def test_its_load_is_recorded_and_simulated(played: Played, one: Served) -> None:
    shell, history, out = played.shell, f"{one.name}.csv", f"{one.name}.out"
    since = f"now-{int(SECONDS * 0.9)}s"
    shell.run(
        f"rlscaler trace import --prometheus $PROMETHEUS --query '{one.counted}' --step 15s --from {since} {history}"
    )
    if not REAL_TIME:
        at_the_pace_of_a_day(shell.folder / history)
        shell.say(f"# the time in {history} is stretched to that of a day")
    if one.tokens is not None:
        played_in_tokens = f"rlscaler tokens simulate {one.name}.yaml --history {history} --server 8b-l40s --mix short"
        assert "KEDA" in shell.run(played_in_tokens)
        return
    said = shell.run(f"rlscaler simulate {one.name}.yaml --history {history} --out {out}", codes=(0, 3))
    assert "this policy (rule)" in said
    assert ("a first look: " in " ".join(said.split())) == REAL_TIME


def at_the_pace_of_a_day(history: Path) -> None:
    """Give the seconds of a recorded day that was played faster their own length again."""
    found = read_trace(history)
    write_trace(history, replace(found, width_s=found.width_s * 86_400 / SECONDS))
