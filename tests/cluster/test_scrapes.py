"""What a real Prometheus says of series as they are scraped in clusters: with `honor_labels: false`, behind a
ServiceMonitor, by an HA pair, and of pods whose names are cut."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator

import pytest

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.answer import Bounds
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.measure import Readings, measure
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.queries import Window, batch, own_queries
from rlscaler_operator.sensing.results import NOTHING
from rlscaler_operator.sensing.subject import Subject
from tests.harness.scraping import Counters, about, prometheus

WINDOW = Window(5, 1.0, 2)
RECEIVED = "inference_requests_received_total"
ANSWERED = "inference_request_duration_seconds"
HASH = "7d9c6b8f5d"
MANY = 200


def pod_of(deployment: str, number: int = 0) -> str:
    """A pod's name as the API server makes it: what precedes the random suffix is cut after 58 characters."""
    return f"{deployment}-{HASH}-"[:58] + f"x7k{'bcdf'[number]}p"


def counts(exporter: Counters, rate: float, **labels: str) -> None:
    """Arrivals and answers of one service and pool, each answered within 0.2 s."""
    exporter.counter(RECEIVED, rate, **labels)
    exporter.counter(f"{ANSWERED}_count", rate, **labels)
    for le in ("0.1", "0.2", "0.5", "+Inf"):
        exporter.counter(f"{ANSWERED}_bucket", rate if le != "0.1" else 0.0, **labels, le=le)


def usage(exporter: Counters, namespace: str, pod: str, cores: float = 0.5) -> None:
    """Usage of one pod, as cAdvisor gives it."""
    where = {"namespace": namespace, "pod": pod, "container": "app"}
    exporter.counter("container_cpu_usage_seconds_total", cores, **where, cpu="total")
    exporter.gauge("container_memory_working_set_bytes", 5e8, **where)


def requests(exporter: Counters, namespace: str, pod: str) -> None:
    """Requests of one pod, as kube-state-metrics gives them."""
    for resource, value in (("cpu", 1.0), ("memory", 1e9)):
        labels = {"namespace": namespace, "pod": pod, "container": "app", "resource": resource}
        exporter.gauge("kube_pod_container_resource_requests", value, **labels)


def ready(exporter: Counters, namespace: str, pod: str) -> None:
    exporter.gauge("kube_pod_status_ready", 1.0, namespace=namespace, pod=pod, condition="true")


def gpu(exporter: Counters, namespace: str, pod: str, percent: float) -> None:
    """One series as dcgm-exporter gives it."""
    labels = {"gpu": "0", "UUID": f"GPU-{pod}", "device": "nvidia0", "modelName": "NVIDIA A100", "Hostname": "node-1"}
    exporter.gauge("DCGM_FI_DEV_GPU_UTIL", percent, **labels, container="app", namespace=namespace, pod=pod)


LONG = {length: ("chat-with-a-very-long-name-" * 3)[: length - 4] + "-gpu" for length in (46, 47, 52, 56, 57)}


SHOP = Subject("shop", "chat", ("chat-gpu", "chat-cpu"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    exporters: list[Counters] = []

    def exporter() -> Counters:
        exporters.append(Counters())
        return exporters[-1]

    targets: list[tuple[str, dict[str, str]]] = []
    # A ServiceMonitor: namespace, pod and service are those of the target, what the pod says is exported_*.
    for number, pool in enumerate(("gpu", "cpu")):
        one = exporter()
        counts(one, 20.0, namespace="shop", service="chat", pool=pool)
        labels = {
            "namespace": "shop",
            "service": f"chat-{pool}-http",
            "pod": pod_of(f"chat-{pool}"),
            "container": "app",
        }
        targets.append((one.address, labels | {"endpoint": "http", "instance": f"10.0.0.{number}:8080"}))
    # A PodMonitor: there is no label `service` on the target.
    one = exporter()
    counts(one, 15.0, namespace="shop", service="monitored", pool="gpu")
    targets.append((one.address, {"namespace": "shop", "pod": "monitored-gpu-1", "container": "app"}))
    # A gateway in a namespace of its own.
    one = exporter()
    counts(one, 30.0, namespace="shop", service="routed", pool="gpu")
    targets.append((one.address, {"namespace": "gateways", "service": "envoy", "pod": "envoy-1", "container": "envoy"}))
    # A pod of a namespace of its own that speaks for a service of another one.
    for namespace, rate in (("shop", 10.0), ("evil", 1000.0)):
        one = exporter()
        counts(one, rate, namespace="shop", service="victim", pool="gpu")
        targets.append((one.address, {"namespace": namespace, "service": "http", "pod": f"{namespace}-1"}))
    # dcgm-exporter, kube-state-metrics and the kubelet without honor_labels.
    one = exporter()
    gpu(one, "shop", pod_of("chat-gpu"), 75.0)
    labels = {"namespace": "gpu-operator", "service": "nvidia-dcgm-exporter", "pod": "nvidia-dcgm-exporter-x2x4z"}
    targets.append((one.address, labels | {"container": "nvidia-dcgm-exporter"}))
    state, kubelet = exporter(), exporter()
    for name in ("chat-gpu", "chat-cpu"):
        usage(kubelet, "shop", pod_of(name))
        requests(state, "shop", pod_of(name))
        ready(state, "shop", pod_of(name))
    kubelet.gauge("container_memory_working_set_bytes", 9e9, namespace="shop", pod=pod_of("chat-cpu"), container="")
    labels = {"namespace": "monitoring", "service": "kube-state-metrics", "pod": "kube-state-metrics-5d-abcde"}
    targets.append((state.address, labels | {"container": "kube-state-metrics"}))
    targets.append((kubelet.address, {"namespace": "kube-system", "service": "kubelet", "node": "node-1"}))
    # An HA pair behind a querier that does not deduplicate: all series twice, told apart by an external label.
    one = exporter()
    counts(one, 40.0, namespace="pair", service="twice", pool="gpu")
    usage(one, "pair", pod_of("twice-gpu"), cores=0.25)
    requests(one, "pair", pod_of("twice-gpu"))
    replicas = ("prometheus-k8s-0", "prometheus-k8s-1")
    targets += [(one.address, {"prometheus_replica": name, "instance": "10.0.1.1:8080"}) for name in replicas]
    two = exporter()
    counts(two, 40.0, namespace="pair", service="unsaid", pool="gpu")
    targets += [(two.address, {"replica": name, "instance": "10.0.1.2:8080"}) for name in "ab"]
    # Requests of one pod, said by three replicas of kube-state-metrics.
    for number in range(3):
        one = exporter()
        requests(one, "pair", pod_of("counted-gpu"))
        if number == 0:
            usage(one, "pair", pod_of("counted-gpu"), cores=0.25)
        targets.append((one.address, {"instance": f"10.0.2.{number}:8080"}))
    # Two gateways, and two replicas of kube-state-metrics, in namespaces of their own that count one service.
    for space in ("internal", "public"):
        one = exporter()
        counts(one, 10.0, namespace="store", service="fronted", pool="gpu")
        one.counter("nginx_ingress_controller_requests", 10.0, namespace="store", service="fronted", ingress=space)
        usage(one, "store", pod_of("fronted-gpu"), cores=0.25)
        requests(one, "store", pod_of("fronted-gpu"))
        ready(one, "store", pod_of("fronted-gpu"))
        labels = {"namespace": f"ingress-{space}", "service": "ingress", "pod": f"{space}-1", "container": "nginx"}
        targets.append((one.address, labels))
    # Two clusters with the same service and Deployment, told apart by an external label.
    for cluster, rate in (("eu", 10.0), ("us", 90.0)):
        one = exporter()
        counts(one, rate, namespace="shared", service="chat", pool="gpu")
        gpu(one, "shared", pod_of("chat-gpu", int(cluster == "us")), rate)
        targets.append((one.address, {"cluster": cluster}))
    # A service with very many pools.
    one = exporter()
    for number in range(MANY):
        counts(one, 0.1, namespace="store", service="many", pool=f"p{number}")
    targets.append((one.address, {"namespace": "store"}))
    # Pods whose names are cut.
    one = exporter()
    for length, name in LONG.items():
        gpu(one, "long", pod_of(name), float(length))
    targets.append((one.address, {}))
    with prometheus(targets) as address:
        yield address
    for one in exporters:
        one.close()


async def settled(url: str, subject: Subject, ready: tuple[int, int], *signals: str, **options: object) -> Readings:
    """The readings once the signals are known and their windows are full; as they are after a minute otherwise."""
    client = Prometheus(Access(url), timeout_seconds=10)
    queries = batch([subject], WINDOW, WINDOW, **options)
    found = measure(await client.ask(queries), subject, ready)
    try:
        async with asyncio.timeout(60):
            while not all((one := found.get(signal)) and one.known and one.may_lower for signal in signals):
                found = measure(await client.ask(queries), subject, ready)
                await asyncio.sleep(0.5)
    except TimeoutError:
        pass
    await client.close()
    return found


async def test_who_may_speak_for_other_namespaces_is_the_administrators_choice(url: str) -> None:
    victim, routed = (Subject("shop", name, ("x-gpu", None)) for name in ("victim", "routed"))
    trusting = Labels(exporters=("gateways",))
    found = await settled(url, victim, (0, 0), "arrival_rate", "p95_latency", labels=trusting)
    assert found["arrival_rate"].value == about(10)
    found = await settled(url, routed, (0, 0), "arrival_rate", labels=trusting)
    assert found["arrival_rate"].value == about(30)
    found = await settled(url, routed, (0, 0), labels=Labels(exporters=()))
    assert found["arrival_rate"].reason == "SeriesAbsent"


async def test_a_service_monitors_labels_are_understood(url: str) -> None:
    found = await settled(url, SHOP, (1, 1), "arrival_rate", "p95_latency")
    assert found["arrival_rate"].value == about(40)
    assert set(found["arrival_rate"].pools) == {"gpu", "cpu"}
    assert 100 <= found["p95_latency"].value <= 200


@pytest.mark.parametrize(("service", "rate"), [("monitored", 15), ("routed", 30)])
async def test_a_pod_monitors_and_a_gateways_labels_are_understood(url: str, service: str, rate: float) -> None:
    found = await settled(url, Subject("shop", service, ("x-gpu", None)), (0, 0), "arrival_rate", "p95_latency")
    assert found["arrival_rate"].value == about(rate)
    assert found["p95_latency"].known


async def test_the_target_labels_are_no_service_of_the_policys(url: str) -> None:
    await settled(url, SHOP, (1, 1), "arrival_rate")
    found = await settled(url, Subject("shop", "chat-gpu-http", ("chat-gpu", None)), (1, 0))
    assert found["arrival_rate"].reason == "SeriesAbsent"


@pytest.mark.parametrize("preset", ["", "nginx"])
async def test_exporters_in_two_namespaces_that_count_one_service_are_added_up(url: str, preset: str) -> None:
    subject = Subject("store", "fronted", (None, "fronted-gpu"), preset=preset)
    found = await settled(url, subject, (0, 1), "arrival_rate", "cpu_utilization")
    assert found["arrival_rate"].value == about(20)
    assert found["cpu_utilization"].value == about(25)


async def test_the_same_service_in_two_clusters_is_ambiguous_until_one_is_named(url: str) -> None:
    subject = Subject("shared", "chat", ("chat-gpu", None))
    here = Labels(labels=(("cluster", "eu"),))
    found = await settled(url, subject, (1, 0), "arrival_rate", "p95_latency", "gpu_utilization", labels=here)
    assert (found["arrival_rate"].value, found["gpu_utilization"].value) == (about(10), 10)
    client = Prometheus(Access(url), timeout_seconds=10)
    found = measure(await client.ask(batch([subject], WINDOW, WINDOW)), subject, (1, 0))
    await client.close()
    for signal in ("arrival_rate", "p95_latency", "gpu_utilization"):
        assert found[signal].reason == "SeriesAmbiguous"
        assert "matchLabels" in found[signal].message


async def test_very_many_pools_of_one_service_are_one_in_the_answer(url: str) -> None:
    subjects = [Subject("store", "many", (None, "m-cpu")), Subject("store", "fronted", (None, "fronted-gpu"))]
    await settled(url, subjects[0], (0, 0), "arrival_rate")
    client = Prometheus(Access(url), timeout_seconds=10, bounds=Bounds(2**20, 50))
    answers = await client.ask(batch(subjects, WINDOW, WINDOW))
    await client.close()
    many, fronted = (measure(answers, subject, (0, 0))["arrival_rate"] for subject in subjects)
    assert many.value == about(0.1 * MANY)
    assert set(many.pools) == {"others"}
    assert fronted.known


async def test_exporters_of_gpus_containers_and_requests_are_understood_without_honor_labels(url: str) -> None:
    signals = ("gpu_utilization", "cpu_utilization", "memory_utilization")
    found = await settled(url, SHOP, (1, 1), *signals)
    assert found["gpu_utilization"].value == 75
    assert found["cpu_utilization"].value == about(50)
    assert found["memory_utilization"].value == pytest.approx(50, rel=0.01)


async def test_an_ha_pair_without_deduplication_counts_once(url: str) -> None:
    subject = Subject("pair", "twice", ("twice-gpu", None))
    found = await settled(url, subject, (1, 0), "arrival_rate", "p95_latency")
    assert found["arrival_rate"].value == about(40)
    assert found["p95_latency"].known


async def test_a_pair_told_apart_by_another_label_is_ambiguous_until_it_is_named(url: str) -> None:
    subject = Subject("pair", "unsaid", ("unsaid-gpu", None))
    found = await settled(url, subject, (0, 0), "p95_latency")
    assert found["arrival_rate"].reason == "SeriesAmbiguous"
    assert "RLSCALER_REPLICA_LABELS" in found["arrival_rate"].message
    named = Labels(replicas=("prometheus_replica", "replica"))
    found = await settled(url, subject, (0, 0), "arrival_rate", labels=named)
    assert found["arrival_rate"].value == about(40)


@pytest.mark.parametrize("name", ["twice-gpu", "counted-gpu"])
async def test_requests_that_are_counted_several_times_are_those_of_one_pod(url: str, name: str) -> None:
    deployments = (None, name)
    found = await settled(url, Subject("pair", "any", deployments), (0, 1), "cpu_utilization", "memory_utilization")
    assert found["cpu_utilization"].value == about(25)
    assert found["memory_utilization"].value == pytest.approx(50, rel=0.01)


@pytest.mark.parametrize("length", sorted(LONG))
async def test_pods_of_a_deployment_with_a_long_name_are_its_own(url: str, length: int) -> None:
    subject = Subject("long", "any", (LONG[length], None))
    found = await settled(url, subject, (1, 0), "gpu_utilization")
    assert found["gpu_utilization"].value == length


async def test_prometheus_itself_says_when_it_leaves_series_out_and_remarks_are_no_gap(url: str) -> None:
    client = Prometheus(Access(url), timeout_seconds=10, bounds=Bounds(2**20, 3))
    with pytest.raises(MetricsError) as refused:
        await client.instant(f"{ANSWERED}_bucket")
    assert refused.value.reason == "AnswerTooLarge"
    # "PromQL info: metric might not be a counter"
    assert await client.instant('rate(DCGM_FI_DEV_GPU_UTIL{exported_namespace="shop"}[5s])')
    await client.close()


async def test_own_queries_that_are_sent_as_one_have_answers_of_their_own(url: str) -> None:
    where = 'exported_namespace="shop"'
    wanted = {
        "computed": f"sum(rate({RECEIVED}{{{where},exported_service='chat'}}[5s])) # mine",
        "named": f"kube_pod_status_ready{{{where},exported_pod='{pod_of('chat-gpu')}'}}",
        "many": f"{ANSWERED}_bucket",
        "nothing": "absent_here",
        "wrong": "sum(",
    }
    client = Prometheus(Access(url), timeout_seconds=10)

    async def ask(*names: str) -> dict[str, tuple[float, str]]:
        queries = own_queries(Subject("shop", "any", (None, None), queries=tuple((n, wanted[n]) for n in names)))
        answers = (await client.ask_own("shop", queries, ())).answers
        found = {}
        for name, query in zip(names, queries, strict=True):
            answer = answers[query.name]
            one = answer if isinstance(answer, MetricsError) else answer[NOTHING]
            found[name] = (getattr(one, "value", math.nan), one.reason)
        return found

    for _ in range(120):
        if (good := await ask("computed", "named", "nothing"))["computed"] == (about(40), ""):
            break
        await asyncio.sleep(0.5)
    assert good["computed"] == (about(40), "")
    assert good["named"] == (1.0, "")
    assert good["nothing"][1] == "SeriesAbsent"
    among_bad_ones = await ask(*wanted)
    assert {name: among_bad_ones[name][1] for name in good} == {name: good[name][1] for name in good}
    assert (among_bad_ones["many"][1], among_bad_ones["wrong"][1]) == ("AnswerTooLarge", "PrometheusError")
    await client.close()
