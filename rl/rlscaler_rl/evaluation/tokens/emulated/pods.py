"""Pods of a cluster as replicas of the token level, and their metrics by the names of vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from rlscaler_core.decision.types import Float
from rlscaler_loadgen.service.router import Pod
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.state import EMPTY, FIRST_BUCKETS, READY, TOKEN_BUCKETS

LABELS = ("namespace", "pod", "model_name", "engine")


@dataclass
class ReplicaBook:
    """The ready pods of one Deployment, each with its slot of the level, which plays a single service.

    A pod that terminates goes on with its requests for the level's `drain_seconds`, and is seen until then.
    """

    level: TokenLevel
    pods: dict[str, Pod] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    """Slot by the name of the pod, of pods that are ready or drain."""
    before: dict[str, dict[str, Float]] = field(default_factory=dict)
    """Counters of the slot when the pod took it."""
    _leaving: list[str] = field(default_factory=list)

    def apply(self, pod: Pod) -> None:
        """Take in a pod as it is now."""
        self.pods[pod.name] = pod
        if pod.terminating:
            self._leave(pod.name)
        elif pod.routable and pod.name not in self.slots:
            self._enter(pod.name)

    def remove(self, name: str) -> None:
        """Forget a pod that is no longer there."""
        self.pods.pop(name, None)
        self._leave(name)

    def advance(self, seconds: float) -> None:
        """Let time pass, and let pods leave as long as one stays that is ready."""
        self.level.advance(seconds)
        phase = self.level.fleet.pod[0]["phase"]
        while self._leaving and int((phase == READY).sum()) > 1:
            self.level.remove(0, self.slots[self._leaving.pop(0)])
        for name, slot in list(self.slots.items()):
            if phase[slot] == EMPTY:
                del self.slots[name], self.before[name]

    def counters(self, name: str) -> dict[str, Float]:
        """Return the counters of a pod since it was ready."""
        now, before = self._slot_counters(self.slots[name]), self.before[name]
        return {key: value - before[key] for key, value in now.items()}

    def _enter(self, name: str) -> None:
        if not self.before:
            # The level begins with one ready replica in its first slot.
            slot = 0
        else:
            slot = self.level.order(0)
            self.level.bring_up(0, slot)
        self.slots[name], self.before[name] = slot, self._slot_counters(slot)

    def _leave(self, name: str) -> None:
        if name in self.slots and name not in self._leaving:
            self._leaving.append(name)

    def _slot_counters(self, slot: int) -> dict[str, Float]:
        fleet = self.level.fleet
        pod = fleet.pod[0, slot]
        return {
            "first": fleet.first_seen[0, slot].copy(),
            "token": fleet.token_seen[0, slot].copy(),
            **{key: np.asarray(pod[key], np.float64) for key in ("routed", "prompt_done", "answer_done")},
        }


class VllmCollector(Collector):
    """Series of vLLM for every pod of a book, made at each scrape."""

    def __init__(self, book: ReplicaBook, namespace: str, model: str) -> None:
        self._book, self._namespace, self._model = book, namespace, model

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        gauges = {
            "running": GaugeMetricFamily("vllm:num_requests_running", "Sequences in the batch", labels=LABELS),
            "waiting": GaugeMetricFamily("vllm:num_requests_waiting", "Requests in the queue", labels=LABELS),
            "held": GaugeMetricFamily("vllm:kv_cache_usage_perc", "Part of the KV cache in use", labels=LABELS),
        }
        tokens = {
            "prompt_done": CounterMetricFamily("vllm:prompt_tokens", "Tokens of prompts", labels=LABELS),
            "answer_done": CounterMetricFamily("vllm:generation_tokens", "Tokens of answers", labels=LABELS),
        }
        over = CounterMetricFamily("vllm:request_success", "Requests that are over", labels=LABELS)
        first = HistogramMetricFamily("vllm:time_to_first_token_seconds", "TTFT", labels=LABELS)
        token = HistogramMetricFamily("vllm:request_time_per_output_token_seconds", "TPOT", labels=LABELS)
        for name, slot in self._book.slots.items():
            labels = [self._namespace, name, self._model, "0"]
            pod, counters = self._book.level.fleet.pod[0, slot], self._book.counters(name)
            running = float(pod["running"] + pod["joining"] + (pod["partial"] >= 0))
            gauges["running"].add_metric(labels, running)
            gauges["waiting"].add_metric(labels, float(pod["waiting"]))
            gauges["held"].add_metric(labels, float(pod["held"] / self._book.level.services.kv_tokens[0]))
            for key, family in tokens.items():
                family.add_metric(labels, float(counters[key]))
            over.add_metric(labels, float(counters["routed"]) - running - float(pod["waiting"]))
            first.add_metric(labels, *_histogram(FIRST_BUCKETS, counters["first"]))
            token.add_metric(labels, *_histogram(TOKEN_BUCKETS, counters["token"]))
        yield from (*gauges.values(), *tokens.values(), over, first, token)


def _histogram(bounds: Float, counts: Float) -> tuple[list[tuple[str, float]], float]:
    """Return the cumulative buckets, and the sum as if each value were at its bucket's upper bound."""
    upto = np.cumsum(counts).tolist()
    names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    return list(zip(names, upto, strict=True)), float(counts[:-1] @ bounds + counts[-1] * bounds[-1])


def outcomes(level: TokenLevel) -> Mapping[str, Float]:
    """Return a column for each fact of a request that has arrived: arrival, tokens, seconds to first and each further
    token. NaN: there was none."""
    requests, fleet = level.requests, level.fleet
    came = requests.arrived < level.time
    columns: dict[str, NDArray[Any]] = {
        "arrived": requests.arrived,
        "prompt": requests.prompt,
        "answer": requests.answer,
        "need": requests.need,
        "first": fleet.first,
        "token": fleet.token,
    }
    return {name: np.asarray(column[came], np.float64) for name, column in columns.items()}
