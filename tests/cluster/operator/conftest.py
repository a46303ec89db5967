"""A service whose metrics the test controls, and operators as processes of their own on the real control plane."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import tenacity
import yaml

import rlscaler_operator
from rlscaler_devcluster.exceptions import ApiError
from rlscaler_devcluster.kube import KubeClient

REPOSITORY = Path(__file__).parents[3]
RPS = {"gpu": 20.0, "cpu": 4.0}
REQUEST = {"gpu": (4.0, 8e9), "cpu": (2.0, 2e9)}
"""Cores and bytes that one pod requests."""

BUCKETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)


@dataclass
class Load:
    """What the exporter says about one service; the test changes it at any time."""

    namespace: str
    service: str
    rate: float = 0.0
    latency: float = 0.2
    dated: bool = False
    """Say when each sample was taken, as federation and cAdvisor do: Prometheus cannot tell then that it stopped."""
    fault: str = ""
    """"" | absent | nan | stale | half (of the GPU pool nothing)"""
    _received: float = 0.0
    _at: float = field(default_factory=time.time)
    _frozen: str = ""

    def text(self) -> str:
        now = time.time()
        if self.fault == "stale":
            return self._frozen
        self._received += self.rate * (now - self._at)
        self._at = now
        if self.fault == "absent":
            return ""
        lines = self._lines(received=float("nan") if self.fault == "nan" else None)
        stamp = f" {int(now * 1000)}" if self.dated else ""
        self._frozen = "".join(f"{line}{stamp}\n" for line in lines)
        return self._frozen

    def _lines(self, received: float | None = None) -> Iterator[str]:
        total = self._received if received is None else received
        for pool in ("cpu",) if self.fault == "half" else ("gpu", "cpu"):
            labels = f'namespace="{self.namespace}",service="{self.service}",pool="{pool}"'
            yield f"inference_requests_received_total{{{labels}}} {total / 2}"
            for bound in (*BUCKETS, float("inf")):
                le = "+Inf" if bound == float("inf") else bound
                count = self._received / 2 if bound >= self.latency else 0
                yield f'inference_request_duration_seconds_bucket{{{labels},le="{le}"}} {count}'
            yield f"inference_request_duration_seconds_count{{{labels}}} {self._received / 2}"
        for pool in ("gpu", "cpu"):
            cores, memory = REQUEST[pool]
            pod = f'namespace="{self.namespace}",pod="{self.service}-{pool}-6b7f-abcde"'
            used = self._received / 2 / RPS[pool] * cores
            yield f'container_cpu_usage_seconds_total{{{pod},container="app"}} {used}'
            yield f'container_memory_working_set_bytes{{{pod},container="app"}} {memory / 2}'
            for resource, value in (("cpu", cores), ("memory", memory)):
                labels = f'{pod},container="app",resource="{resource}",unit="x"'
                yield f"kube_pod_container_resource_requests{{{labels}}} {value}"
        gpu = 100 * self.rate / 2 / RPS["gpu"]
        yield f'DCGM_FI_DEV_GPU_UTIL{{namespace="{self.namespace}",pod="{self.service}-gpu-6b7f-abcde",gpu="0"}} {gpu}'


class Exporter:
    """Serves the metrics of all services on one port."""

    def __init__(self) -> None:
        self.loads: list[Load] = []
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = "".join(load.text() for load in list(exporter.loads)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Operator:
    """One `rlscaler operator run` process."""

    def __init__(self, kubeconfig: Path, prometheus_url: str, folder: Path, *options: str) -> None:
        self.log, self.audit = folder / "operator.log", folder / "audit.jsonl"
        command = [sys.executable, "-m", "rlscaler_operator.cli", "operator", "run", "--kubeconfig", str(kubeconfig)]
        command += ["--prometheus-url", prometheus_url, "--scrape-interval", "2", "--lease-seconds", "5"]
        command += ["--audit-log", str(self.audit), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(15)

    def decisions(self, name: str) -> list[dict[str, Any]]:
        if not self.audit.exists():
            return []
        lines = [line for line in self.audit.read_text().splitlines() if line.endswith("}")]
        return [record for record in map(json.loads, lines) if record["name"] == name]


class World:
    """Objects in one namespace of the cluster, and waiting for them."""

    def __init__(self, kube: KubeClient, namespace: str, exporter: Exporter) -> None:
        self.kube, self.namespace, self._exporter = kube, namespace, exporter
        kube.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        roots = {
            "rlscalingpolicies": "/apis/rlscaler.io/v1alpha1",
            "deployments": "/apis/apps/v1",
            "horizontalpodautoscalers": "/apis/autoscaling/v2",
            "httproutes": "/apis/gateway.networking.k8s.io/v1",
            "events": "/api/v1",
        }
        parts = [roots[plural], "namespaces", self.namespace, plural, name, subresource]
        return "/".join(part for part in parts if part)

    def service(self, name: str, rate: float, dated: bool = False) -> Load:
        load = Load(self.namespace, name, rate, dated=dated)
        self._exporter.loads.append(load)
        return load

    def deployment(self, name: str, pool: str, replicas: int = 1) -> None:
        pod = {
            "nodeSelector": {"pool": pool},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "containers": [{"name": "app", "image": "app"}],
        }
        template = {"metadata": {"labels": {"app": name, "rlscaler.io/flavour": pool}}, "spec": pod}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
        self.kube.request("POST", self.path("deployments"), {"metadata": {"name": name}, "spec": spec})

    def deployments(self, service: str, gpu: int = 1, cpu: int = 1) -> None:
        self.deployment(f"{service}-gpu", "gpu", gpu)
        self.deployment(f"{service}-cpu", "cpu", cpu)

    def policy(self, name: str, **spec: Any) -> None:
        body = {
            "apiVersion": "rlscaler.io/v1alpha1",
            "kind": "RLScalingPolicy",
            "metadata": {"name": name},
            "spec": {
                "mode": "Auto",
                "intervalSeconds": 10,
                "senseSeconds": 1,
                "targets": {
                    pool: {
                        "deployment": f"{name}-{pool}",
                        "maxReplicas": 10,
                        "requestsPerSecond": RPS[pool],
                        "coldStartSeconds": {"gpu": 45, "cpu": 8}[pool],
                    }
                    for pool in ("gpu", "cpu")
                },
                "slo": {"latencyMilliseconds": 1000},
                "policy": {"bundled": "rule"},
                **spec,
            },
        }
        self.kube.request("POST", self.path("rlscalingpolicies"), body)

    def get(self, plural: str, name: str) -> dict[str, Any]:
        return self.kube.request("GET", self.path(plural, name))

    def patch(self, plural: str, name: str, body: Any, subresource: str = "", manager: str = "test") -> None:
        path = f"{self.path(plural, name, subresource)}?fieldManager={manager}"
        self.kube.request("PATCH", path, body, content_type="application/merge-patch+json")

    def delete(self, plural: str, name: str) -> None:
        self.kube.request("DELETE", self.path(plural, name))

    def replicas(self, service: str) -> tuple[int, int]:
        return tuple(self.get("deployments", f"{service}-{pool}")["spec"]["replicas"] for pool in ("gpu", "cpu"))

    def condition(self, policy: str, type_: str) -> tuple[str, str]:
        conditions = self.get("rlscalingpolicies", policy).get("status", {}).get("conditions", [])
        return next(((c["status"], c["reason"]) for c in conditions if c["type"] == type_), ("", ""))

    def events(self, policy: str) -> set[str]:
        items = self.kube.request("GET", self.path("events"))["items"]
        return {item["reason"] for item in items if item["involvedObject"]["name"] == policy}

    def weights(self, route: str) -> dict[str, int]:
        refs = self.get("httproutes", route)["spec"]["rules"][0]["backendRefs"]
        return {ref["name"]: ref["weight"] for ref in refs}


@pytest.fixture(scope="session")
def wait() -> Callable[..., Any]:
    """Wait until a function returns something true and return that; the last value says why it did not."""

    def until(look: Callable[[], Any], seconds: float = 30.0) -> Any:
        seen: list[Any] = [None]

        def attempt() -> Any:
            seen[0] = look()
            return seen[0]

        try:
            return tenacity.Retrying(
                stop=tenacity.stop_after_delay(seconds),
                wait=tenacity.wait_fixed(0.25),
                retry=tenacity.retry_if_result(lambda value: not value) | tenacity.retry_if_exception_type(ApiError),
            )(attempt)
        except tenacity.RetryError as error:
            raise AssertionError(f"not within {seconds:g} s; last seen: {seen[0]!r}") from error

    return until


@pytest.fixture(scope="session")
def stays() -> Callable[..., None]:
    """Check for some time that a function keeps returning one value."""

    def check(look: Callable[[], Any], value: Any, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        ticker = threading.Event()
        while time.monotonic() < deadline:
            assert look() == value
            ticker.wait(0.5)

    return check


@pytest.fixture(scope="session")
def kube(cluster, wait) -> Iterator[KubeClient]:
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
        crd = yaml.safe_load((REPOSITORY / "crds" / "rlscalingpolicies.yaml").read_text())
        collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        client.request(
            "PATCH",
            f"{collection}/{crd['metadata']['name']}?fieldManager=test&force=true",
            crd,
            content_type="application/apply-patch+yaml",
        )
        wait(lambda: client.request("GET", "/apis/rlscaler.io/v1alpha1/rlscalingpolicies"))
        yield client


@pytest.fixture(scope="session")
def exporter(cluster) -> Iterator[Exporter]:
    server = Exporter()
    cluster.add_scrape_target("operator-tests", server.address)
    yield server
    server.close()


@pytest.fixture(scope="session")
def operator_kubeconfig(cluster, kube, tmp_path_factory) -> Path:
    """A service account with the permissions that ship with the operator, and no others."""
    rbac = yaml.safe_load((Path(rlscaler_operator.__file__).parent / "rbac.yaml").read_text())
    group = "/apis/rbac.authorization.k8s.io/v1"
    account = {"kind": "ServiceAccount", "name": "rlscaler", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": rbac["metadata"]["name"]}
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    kube.request("POST", f"{group}/clusterroles", rbac)
    kube.request("POST", accounts, {"metadata": {"name": "rlscaler"}})
    binding = {"metadata": {"name": "rlscaler-operator"}, "roleRef": role, "subjects": [account]}
    kube.request("POST", f"{group}/clusterrolebindings", binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    token = kube.request("POST", f"{accounts}/rlscaler/token", request)["status"]["token"]
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    path = tmp_path_factory.mktemp("kubeconfig") / "operator"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def world(kube, exporter, request) -> World:
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")
    return World(kube, f"{name}-{os.getpid()}", exporter)


@pytest.fixture(scope="module")
def start(cluster, operator_kubeconfig, world, tmp_path_factory) -> Iterator[Callable[..., Operator]]:
    """Start an operator for the module's namespace; all are stopped in the end."""
    started: list[Operator] = []

    def run(*options: str) -> Operator:
        folder = tmp_path_factory.mktemp("operator")
        lease = ("--lease-name", world.namespace, "--namespace", world.namespace)
        started.append(Operator(operator_kubeconfig, cluster.prometheus_url, folder, *lease, *options))
        return started[-1]

    yield run
    codes = [one.stop() for one in started]
    assert set(codes) <= {0, 1, -signal.SIGKILL}, [one.log.read_text()[-4000:] for one in started]


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
