"""Take real servers under load the way of a newcomer: init, preflight, apply, Shadow with evidence, explain.

A day's load is played in `RLSCALER_SERVERS_MINUTES` (8). From an hour on the operator is as it ships, and Prometheus
scrapes every 15 s; in less time the windows of the calibration are shorter, and scrapes and Ray's exports closer.
`RLSCALER_SERVERS_ONLY` names some of llm, ray and llama, separated by commas.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from rlscaler_core.api.promotion import EvidenceDay
from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient
from rlscaler_dev.cluster.network import free_ports
from rlscaler_live.cli import main
from rlscaler_loadgen.traces import read_trace, write_trace
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS, is_calibrated
from tests.harness import setup
from tests.harness.control_plane import own_cluster
from tests.harness.load import Exporter
from tests.harness.operators import Operator
from tests.harness.scraping import prometheus
from tests.harness.waiting import looks, until
from tests.harness.world import World
from tests.servers.running import PYTHON, VLLM_PYTHON, carried, load, server

pytestmark = pytest.mark.skipif(
    not (PYTHON and VLLM_PYTHON),
    reason="RLSCALER_SERVERS_PYTHON or RLSCALER_VLLM_PYTHON names no Python with the servers",
)

SECONDS = 60 * float(os.environ.get("RLSCALER_SERVERS_MINUTES", "8"))
REAL_TIME = SECONDS >= 3600
WINDOW = WINDOW_SECONDS if REAL_TIME else SECONDS / 8
SCRAPE_SECONDS = 15 if REAL_TIME else 1
RAY_MILLISECONDS = "10000" if REAL_TIME else "1000"
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

NAMESPACE = "workloads"


@dataclass(frozen=True)
class Served:
    """One service: what runs in its pod, and what its user knows of it."""

    name: str
    image: str
    pool: str
    busy: float
    """Requests/s at noon, as a share of what a replica carries."""
    slo_ms: int
    start: Callable[[ExitStack, Path], tuple[str, bytes | None, tuple[tuple[str, dict[str, str]], ...]]]
    """Gives where requests go, their body, and what is scraped with which labels beside the pod's."""
    metrics: dict[str, str]
    """Added to `spec.metrics` of what init wrote."""


def vllm(stack: ExitStack, folder: Path) -> tuple[str, bytes, tuple[tuple[str, dict[str, str]], ...]]:
    (port,) = free_ports(1)
    stack.enter_context(server("vllm_server.py", str(port), str(folder), python=VLLM_PYTHON))
    asked = {"model": "chat", "prompt": list(range(3, 63)), "max_tokens": 24, "ignore_eos": True, "detokenize": False}
    url = f"http://127.0.0.1:{port}/v1/completions"
    return url, json.dumps(asked).encode(), ((f"127.0.0.1:{port}", {}),)


def ray_serve(stack: ExitStack, _: Path) -> tuple[str, None, tuple[tuple[str, dict[str, str]], ...]]:
    """Ray's sockets lie 62 characters below its folder, and may have 107: it gets a short one."""
    port, metrics = free_ports(2)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
    stack.enter_context(server("ray_serve.py", str(port), str(metrics), folder, RAY_MILLISECONDS))
    return f"http://127.0.0.1:{port}/", None, ((f"127.0.0.1:{metrics}", {}),)


def llama_cpp(stack: ExitStack, folder: Path) -> tuple[str, bytes, tuple[tuple[str, dict[str, str]], ...]]:
    """llama.cpp counts no requests: Envoy does in front of it, under Envoy Gateway's name of a route's rule."""
    port, door, metrics = free_ports(3)
    stack.enter_context(server("llama_cpp.py", str(port), str(folder), "4"))
    route = f"httproute/{NAMESPACE}/llama/rule/0"
    stack.enter_context(server("front_door.py", str(door), str(metrics), str(port), route, str(folder)))
    asked = {"prompt": "w1 w2 w3 w4 " * 8, "n_predict": 256, "ignore_eos": True}
    of_door = {"__metrics_path__": "/stats/prometheus", "pod": "envoy-5d4f7c9b8d-abcde", "namespace": "gateways"}
    scraped = ((f"127.0.0.1:{port}", {}), (f"127.0.0.1:{metrics}", of_door))
    return f"http://127.0.0.1:{door}/completion", json.dumps(asked).encode(), scraped


EVERY = (
    Served("llm", "vllm/vllm-openai:v0.32", "gpu", 0.1, 5000, vllm, {}),
    Served("ray", "rayproject/ray:2.60", "cpu", 0.3, 500, ray_serve, {"service": "default"}),
    Served(
        "llama",
        "ghcr.io/ggml-org/llama.cpp:server",
        "cpu",
        0.15,
        2500,
        llama_cpp,
        {"frontDoor": "envoy", "service": "llama"},
    ),
)
ONLY = os.environ.get("RLSCALER_SERVERS_ONLY", "")
"""Names of the services to play, separated by commas; by default all."""
SERVED = tuple(one for one in EVERY if not ONLY or one.name in ONLY.split(","))


def day(most: float) -> Callable[[float], float]:
    """The load of a day within `SECONDS`, in requests/s by the seconds since its begin."""
    return lambda at: most * (1 - (1 - QUIET_SHARE) * (0.5 + 0.5 * math.cos(2 * math.pi * at / SECONDS)))


@dataclass
class Played:
    """What was seen while the load was on."""

    world: World
    run: Callable[..., str]
    prometheus_url: str
    folder: Path
    carries: dict[str, float]
    """Requests/s of one replica, by a load test."""

    def promotion(self, name: str) -> dict[str, Any]:
        return self.world.get("rlscalingpolicies", name).get("status", {}).get("promotion", {})

    def today(self, name: str) -> EvidenceDay | None:
        days = [EvidenceDay.model_validate(day) for day in self.promotion(name).get("evidence", [])]
        return days[-1] if days else None


@contextmanager
def running(tmp: Path) -> Iterator[tuple[dict[str, tuple[str, bytes | None]], list[tuple[str, str, dict[str, str]]]]]:
    """All servers: where each takes requests, and what is scraped of which."""
    asked, scraped = {}, []
    with ExitStack() as stack:
        for one in SERVED:
            folder = tmp / one.name
            folder.mkdir()
            url, body, targets = one.start(stack, folder)
            asked[one.name] = url, body
            scraped += [(one.name, address, labels) for address, labels in targets]
        yield asked, scraped


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterInfo]:
    with own_cluster("servers", cold_start_seconds={"gpu": (1.0, 2.0), "cpu": (0.2, 0.8)}) as started:
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
        asked, scraped = stack.enter_context(running(tmp))
        for one in SERVED:
            world.deployment(one.name, one.pool, gpus=1 if one.pool == "gpu" else 0)
            container = world.get("deployments", one.name)["spec"]["template"]["spec"]["containers"][0]
            pod = {"spec": {"containers": [container | {"image": one.image}]}}
            world.patch("deployments", one.name, {"spec": {"template": pod}})
        carries = {one.name: carried(*asked[one.name], CLIENTS, LOAD_TEST_SECONDS) for one in SERVED}
        pods = {one.name: until(lambda one=one: ready_pod(world, one.name), 60) for one in SERVED}
        targets = [
            (address, {"namespace": NAMESPACE, "pod": pods[name], "container": "app", "service": name} | labels)
            for name, address, labels in scraped
        ]
        url = stack.enter_context(prometheus(targets, scrape_seconds=SCRAPE_SECONDS))
        scrape = str(SCRAPE_SECONDS)
        words = ["--kubeconfig", str(cluster.kubeconfig), "-n", NAMESPACE]

        def run(*said: str, code: int = 0) -> str:
            more = ["--prometheus-url", url, "--scrape-interval", scrape, "--operator", "default/rlscaler"]
            more += ["--lease-name", NAMESPACE]
            done = CliRunner(env={"COLUMNS": "200"}).invoke(
                main, [*said, *(words if said[0] != "simulate" else []), *(more if said[0] == "preflight" else [])]
            )
            assert done.exit_code == code, done.output
            return done.output

        program = ("-c", FASTER.format(window=WINDOW))
        options = ("--lease-name", NAMESPACE, "--namespace", NAMESPACE, "--scrape-interval", scrape)
        operator = Operator(kubeconfig, url, tmp, *options, program=program)
        stack.callback(operator.stop)
        for one in SERVED:
            stack.enter_context(load(*asked[one.name], day(one.busy * carries[one.name])))
        made = Played(world, run, url, tmp, carries)
        for one in SERVED:
            begun(made, one)
        for _ in looks(SECONDS, every=10):
            assert operator.process.poll() is None, operator.log.read_text()[-4000:]
        # Evidence is written to the status every five minutes, so the last of it is seen after that time.
        until(lambda: all(seen(made.today(one.name)) for one in SERVED), 2 * WINDOW + 330)
        yield made


def seen(day: EvidenceDay | None) -> bool:
    """Whether the status has what was compared while the load was on."""
    return day is not None and day.measured is not None and 3600 * day.hours > COMPARED_SHARE * SECONDS


def ready_pod(world: World, name: str) -> str:
    """The one pod of a Deployment that has rolled out."""
    status, pods = world.get("deployments", name).get("status", {}), world.pods(name)
    done = status.get("updatedReplicas") == status.get("readyReplicas") == len(pods) == 1
    return pods[0]["metadata"]["name"] if done else ""


def begun(played: Played, one: Served) -> None:
    """What a newcomer does: init, fill in what it marks as a guess, preflight until it is green, apply."""
    path = played.folder / f"{one.name}.yaml"
    played.run("init", "--deployment", one.name, "--out", str(path))
    policy = yaml.safe_load(path.read_text())
    spec = policy["spec"]
    spec["slo"]["latencyMilliseconds"] = one.slo_ms
    spec["targets"][one.pool] |= {"requestsPerSecond": round(played.carries[one.name], 2), "coldStartSeconds": 60}
    spec["metrics"] |= one.metrics
    path.write_text(yaml.safe_dump(policy))
    until(lambda: green(played, path), 120)
    played.world.kube.request("POST", played.world.path("rlscalingpolicies"), policy)


def green(played: Played, path: Path) -> bool:
    try:
        return bool(played.run("preflight", str(path)))
    except AssertionError as error:
        print(error)
        return False


@pytest.mark.parametrize("one", SERVED, ids=lambda one: one.name)
def test_shadows_evidence_counts(played: Played, one: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """All that the day would need but its 18 hours: it is compared throughout, and the model says what was measured."""
    day = played.today(one.name)
    with capsys.disabled():
        print(f"\n{one.name}: a replica carries {played.carries[one.name]:.2f} requests/s; {day}")
    assert day is not None
    assert day.measured is not None
    assert played.promotion(one.name)["reason"] == "CollectingEvidence"
    assert 3600 * day.hours > COMPARED_SHARE * SECONDS, "compared while the load was on"
    assert day.requests > 0.8 * one.busy * played.carries[one.name] * QUIET_SHARE * SECONDS
    assert day.measured.windows >= 4
    whole = day.model_copy(update={"requests": max(day.requests, 501.0), "hours": day.measured.windows * WINDOW / 3600})
    assert is_calibrated(whole) or not REAL_TIME
    assert day.measured.agreeing >= 0.75 * day.measured.windows


@pytest.mark.parametrize("one", SERVED, ids=lambda one: one.name)
def test_its_decisions_are_explained(played: Played, one: Served) -> None:
    said = played.run("explain", one.name)
    assert "replicas" in said
    assert played.world.condition(one.name, "Ready")[0] == "True"
    assert played.world.get("deployments", one.name)["spec"]["replicas"] == 1, "Shadow changes nothing"


@pytest.mark.parametrize("one", SERVED, ids=lambda one: one.name)
def test_its_load_is_recorded_and_simulated(
    played: Played, one: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "load.csv"
    counted = {
        "llm": "sum(rate(vllm:request_success_total[30s]))",
        "ray": 'sum(rate(ray_serve_num_http_requests_total{application="default"}[30s]))',
        "llama": "sum(rate(envoy_cluster_upstream_rq_total[30s]))",
    }[one.name]
    words = ["trace", "import", "--prometheus", played.prometheus_url, "--query", counted, "--step", "15s"]
    words += ["--from", f"now-{int(SECONDS * 0.9)}s", str(history)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    if not REAL_TIME:
        at_the_pace_of_a_day(history)
    path = played.folder / f"{one.name}.yaml"
    done = CliRunner().invoke(
        main, ["simulate", str(path), "--history", str(history), "--out", str(tmp_path / "out"), "-o", "json"]
    )
    assert done.exit_code in (0, 3), done.output
    found = json.loads(done.stdout)
    with capsys.disabled():
        print(f"\n{one.name}: {found['rows']} {found['notes']}")
    assert any(note.startswith("a first look: ") for note in found["notes"]) == REAL_TIME


def at_the_pace_of_a_day(history: Path) -> None:
    """Give the seconds of a recorded day that was played faster their own length again."""
    found = read_trace(history)
    write_trace(history, replace(found, width_s=found.width_s * 86_400 / SECONDS))
