"""Subjects of every preset, what their expositions say, and the operator's queries about them.

The files in tests/data/presets say in their first line whether they were recorded from the server or made from its
source or documentation. Counters rise by a sixtieth of what the file says each second.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.measure import Readings, measure
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.queries import Window, batch
from rlscaler_operator.sensing.results import Answers
from rlscaler_operator.sensing.subject import Subject

WINDOW = Window(8, 1.0, 4)
DATA = Path(__file__).parents[1] / "data" / "presets"
IN_PODS = ("vllm", "sglang", "rayserve", "llamacpp", "tgi", "triton", "torchserve")
AT_THE_DOOR = ("istio", "envoy", "nginx", "traefik")


def pod(deployment: str) -> str:
    return f"{deployment}-7d9c6b8f5d-x7kbp"


async def answers_to(url: str, subject: Subject, *names: str, labels: Labels | None = None) -> Answers:
    """The answers once the queries of these names give values over full windows; as they are after a while."""
    client = Prometheus(Access(url), timeout_seconds=10)
    queries = batch([subject], WINDOW, WINDOW, labels or Labels())
    answers = await client.ask(queries)
    try:
        async with asyncio.timeout(25):
            while not all(_settled(answers.get(name), subject.namespace) for name in names):
                await asyncio.sleep(0.5)
                answers = await client.ask(queries)
    except TimeoutError:
        pass
    await client.close()
    return answers


def _settled(answer: object, namespace: str) -> bool:
    """Are there readings over full windows? Those of other namespaces count where the subject's own has none."""
    readings = answer if isinstance(answer, dict) else {}
    own = [one for key, one in readings.items() if namespace in key] or list(readings.values())
    return bool(own) and all(one.known and one.may_lower for one in own)


async def sensed(url: str, subject: Subject, ready: tuple[int, int] = (1, 0), labels: Labels | None = None) -> Readings:
    names = [f"{subject.counted_by} arrival_rate"] if subject.requests.counts_arrivals else []
    if subject.requests.latency is not None:
        names.append(f"{subject.counted_by} {'latency_buckets' if subject.sums_pools else 'p95_ms'}")
    return measure(await answers_to(url, subject, *names, labels=labels), subject, ready)


def in_pods(preset: str, namespace: str = "", **more: object) -> Subject:
    service = "default" if preset == "rayserve" else "chat"
    return Subject(namespace or preset, service, ("chat-gpu", None), preset=preset, **more)


SUBJECTS = {
    **{name: in_pods(name) for name in IN_PODS},
    "knative": Subject("knative", "chat", ("chat-00001-deployment", None), preset="knative"),
    "knative-1.18": Subject("knative-old", "chat", ("chat-00001-deployment", None), preset="knative"),
    "epp": Subject("epp", "chat", ("chat-gpu", None), preset="epp"),
    "epp-llm-d": Subject("epp-llm-d", "chat", ("chat-gpu", None), preset="epp"),
    **{name: Subject("shop", "chat", ("chat-gpu", None), preset=name) for name in AT_THE_DOOR},
}

RATES = {"vllm": 0.4, "rayserve": 200 / 60, "llamacpp": None} | {
    name: 10.0 for name in SUBJECTS if name not in ("vllm", "rayserve", "llamacpp")
}
"""Arrivals per second; None where the server counts none."""

P95_MS = {
    "sglang": (600, 800),
    "rayserve": (400, 500),
    "vllm": (1000, 1500),
    "tgi": (1000, 2000),
    "knative": (1000, 2500),
    "epp": (1000, 2500),
    "epp-llm-d": (1000, 2500),
    "istio": (500, 1000),
    "envoy": (1000, 2500),
    "nginx": (1000, 2500),
    "traefik": (1200, 5000),
}
"""The bucket of the 95th percentile, in milliseconds; what is not here is not exported."""

TOKENS = {"vllm": (1440 + 1152) / 60, "sglang": 1500.0, "tgi": 1500.0}
"""Tokens of prompts and answers per second."""

HELD = {"vllm": (0, 0), "sglang": (12, 12), "rayserve": (0, 0), "llamacpp": (6, 2), "tgi": (12, 9)}
"""Requests that run or wait, and that run."""


async def loaded(url: str, subject: Subject, ready: tuple[int, int] = (1, 0)) -> Readings:
    """Return the readings of a subject whose load is counted in another unit than requests."""
    names = [f"{subject.preset} load {subject.unit}"]
    if subject.requests.counts_arrivals:
        names.append(f"{subject.counted_by} arrival_rate")
    answers = await answers_to(url, subject, *names)
    return measure(answers, subject, ready)
