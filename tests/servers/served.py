"""The three services: how each is started, and what its user knows of it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rlscaler_dev.cluster.network import free_ports
from tests.servers.running import VLLM_PYTHON, server

NAMESPACE = "workloads"

SECONDS = 60 * float(os.environ.get("RLSCALER_SERVERS_MINUTES", "8"))
"""How long a day's load is played."""

REAL_TIME = SECONDS >= 3600
"""The operator's windows, the scrapes and Ray's exports are as they ship; else all are shorter."""

SCRAPE_SECONDS = 15 if REAL_TIME else 1
RAY_MILLISECONDS = "10000" if REAL_TIME else "1000"


PROMPT, ANSWER = 60, 24
"""Tokens of a request to vLLM."""


@dataclass(frozen=True)
class Started:
    """A server that runs."""

    url: str
    """Where requests go."""
    body: bytes | None
    """What is asked; None is a GET."""
    pid: int
    """Of the process that stands for the pod's container, with all that it started."""
    scraped: tuple[tuple[str, Mapping[str, str]], ...]
    """Addresses, and the labels of the target beside those of the pod."""


@dataclass(frozen=True)
class Served:
    """One service."""

    name: str
    image: str
    pool: str
    busy: float
    """Requests/s at noon, as a share of what a replica carries."""
    slo_ms: int
    start: Callable[[ExitStack, Path], Started]
    metrics: Mapping[str, str]
    """Added to `spec.metrics` of what init wrote."""
    counted: str
    """PromQL of its requests/s, of which a history is made."""
    tokens: float | None = None
    """Tokens of a request, where the policy is in tokens and `slo_ms` is the objective of the first one."""


def vllm(stack: ExitStack, folder: Path) -> Started:
    (port,) = free_ports(1)
    pid = stack.enter_context(server("vllm_server.py", str(port), str(folder), python=VLLM_PYTHON))
    prompt = list(range(3, 3 + PROMPT))
    asked = {"model": "chat", "prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "detokenize": False}
    url = f"http://127.0.0.1:{port}/v1/completions"
    return Started(url, json.dumps(asked).encode(), pid, ((f"127.0.0.1:{port}", {}),))


def ray_serve(stack: ExitStack, _: Path) -> Started:
    """Ray's sockets lie 62 characters below its folder, and may have 107: it gets a short one."""
    port, metrics = free_ports(2)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
    pid = stack.enter_context(server("ray_serve.py", str(port), str(metrics), folder, RAY_MILLISECONDS))
    return Started(f"http://127.0.0.1:{port}/", None, pid, ((f"127.0.0.1:{metrics}", {}),))


def llama_cpp(stack: ExitStack, folder: Path) -> Started:
    """llama.cpp counts no requests: Envoy does in front of it, under Envoy Gateway's name of a route's rule."""
    port, door, metrics = free_ports(3)
    pid = stack.enter_context(server("llama_cpp.py", str(port), str(folder), "4"))
    route = f"httproute/{NAMESPACE}/llama/rule/0"
    stack.enter_context(server("front_door.py", str(door), str(metrics), str(port), route, str(folder)))
    asked = {"prompt": "w1 w2 w3 w4 " * 8, "n_predict": 256, "ignore_eos": True}
    of_door = {"__metrics_path__": "/stats/prometheus", "pod": "envoy-5d4f7c9b8d-abcde", "namespace": "gateways"}
    scraped = ((f"127.0.0.1:{port}", {}), (f"127.0.0.1:{metrics}", of_door))
    return Started(f"http://127.0.0.1:{door}/completion", json.dumps(asked).encode(), pid, scraped)


EVERY = (
    Served(
        "llm",
        "vllm/vllm-openai:v0.32",
        "gpu",
        0.1,
        250,
        vllm,
        {},
        "sum(rate(vllm:request_success_total[30s]))",
        tokens=PROMPT + ANSWER,
    ),
    Served(
        "ray",
        "rayproject/ray:2.60",
        "cpu",
        0.3,
        500,
        ray_serve,
        {"service": "default"},
        'sum(rate(ray_serve_num_http_requests_total{application="default"}[30s]))',
    ),
    Served(
        "llama",
        "ghcr.io/ggml-org/llama.cpp:server",
        "cpu",
        0.15,
        2500,
        llama_cpp,
        {"frontDoor": "envoy", "service": "llama"},
        "sum(rate(envoy_cluster_upstream_rq_total[30s]))",
    ),
)
ONLY = os.environ.get("RLSCALER_SERVERS_ONLY", "")
"""Names of the services to play, separated by commas; by default all."""
SERVED = tuple(one for one in EVERY if not ONLY or one.name in ONLY.split(","))
