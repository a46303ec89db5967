"""Looks at token services: the numbers that an autoscaler reads of vLLM's metrics, as the operator's queries make them.

The load in weighted tokens is that of the operator's query: tokens as the servers count them, and for each request by
which the queues have grown the mean of the requests that were over in the last ten minutes.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.joint import worst_latency
from rlscaler_core.decision.tables import make_samples
from rlscaler_core.decision.types import Float, Samples
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.saturation import Saturation
from rlscaler_rl.simulation.tokens.state import FIRST_BUCKETS, READY, STARTING, TOKEN_BUCKETS

Signal = Literal["requests", "tokens", "mix", "waiting", "in_flight", "kv", "backlog", "saturation"]
"""Number that an autoscaler goes by: requests/s, weighted tokens/s, requests/s each weighed by the need of its kind,
requests that wait, that run or wait, KV caches in use, in replicas, seconds that one replica takes for the prompts of
all requests without a first token, or the demand of `Saturation`, in replicas."""

LOOK_SECONDS = 5.0
WINDOW_SECONDS = 30.0
"""Seconds of the rates and of latencies."""

MEAN_SECONDS = 600.0
"""Seconds over which the tokens of a request are averaged, as the operator's query does."""

PEAK_SECONDS, LENGTH_SECONDS = 60.0, 300.0
"""Seconds of the peaks and of the lengths that WVA reads."""

FULL_WHEN_WAITING = 0.1
"""A replica of which this share of the requests waits counts as full."""


class Counters(NamedTuple):
    """Counters and gauges of N services at one moment."""

    time: float
    attempts: Float
    over: Float  # requests that are answered or aborted
    done: Float  # requests that are answered
    prompt: Float  # tokens
    answer: Float
    waiting: Float
    running: Float
    first: Float  # (N, FIRST_BUCKETS + 1) of all pods together
    token: Float
    work: Float  # arrived requests, each weighed by its need; NaN: not read


def counters(level: TokenLevel, per_second: Float | None) -> Counters:
    """Read the services; `per_second` (N,) is the usual capacity of a replica, by which needs become requests."""
    fleet, requests = level.fleet, level.requests
    service, pod = fleet.service, fleet.pod
    waiting = pod["waiting"].sum(axis=1).astype(np.float64)
    running = (pod["running"] + pod["joining"] + (pod["partial"] >= 0)).sum(axis=1).astype(np.float64)
    work = np.full(len(service), np.nan)
    if per_second is not None:
        for n, (begin, end) in enumerate(zip(requests.first[:-1], service["next"], strict=True)):
            work[n] = per_second[n] * requests.need[begin:end].sum()
    return Counters(
        time=level.time,
        attempts=service["attempts"].copy(),
        over=service["attempts"] - waiting - running,
        done=service["done"].copy(),
        prompt=service["prompt_done"].copy(),
        answer=service["answer_done"].copy(),
        waiting=waiting,
        running=running,
        first=fleet.first_seen.sum(axis=1),
        token=fleet.token_seen.sum(axis=1),
        work=work,
    )


class Looks:
    """The looks of the last ten minutes at N services."""

    def __init__(self, level: TokenLevel, weights: Float, per_second: Float | None = None) -> None:
        """`weights` (N, 2) are those of a token of a prompt and of an answer."""
        self.level, self.weights, self.per_second = level, weights, per_second
        self.saturation = Saturation(level.services)
        self._pods: deque[NDArray[Any]] = deque(maxlen=round(PEAK_SECONDS / LOOK_SECONDS) + 1)
        self._seen: deque[Counters] = deque([counters(level, per_second)])

    def look(self) -> None:
        """Read all counters, once every `LOOK_SECONDS`."""
        if self.level.time > self._seen[-1].time:
            self._seen.append(counters(self.level, self.per_second))
        while self._seen[-1].time - self._seen[0].time > MEAN_SECONDS:
            self._seen.popleft()

    def _before(self, seconds: float) -> Counters:
        """The look of so many seconds ago, or the first."""
        back = round(seconds / LOOK_SECONDS)
        return self._seen[max(len(self._seen) - 1 - back, 0)]

    def value(self, signal: Signal) -> Float:
        """(N,) the signal now; NaN where it is not known."""
        now, before = self._seen[-1], self._before(WINDOW_SECONDS)
        if signal == "waiting":
            return now.waiting
        if signal == "in_flight":
            return now.waiting + now.running
        if signal == "kv":
            pod = self.level.fleet.pod
            return np.asarray((pod["held"] * (pod["phase"] == READY)).sum(axis=1) / self.level.services.kv_tokens)
        if signal == "backlog":
            service = self.level.fleet.service
            prompts = service["prompt_in"] - service["prompt_done"] - service["prompt_lost"]
            return np.asarray(prompts * self.level.services.prompt)
        if signal == "saturation":
            return self.saturation.demand(self._peaks(), *self._lengths(now))
        seconds = now.time - before.time
        if seconds <= 0:
            return np.full(len(now.waiting), np.nan)
        if signal == "requests":
            return (now.attempts - before.attempts) / seconds
        if signal == "mix":
            return (now.work - before.work) / seconds
        return self._tokens(now, before, seconds)

    def _tokens(self, now: Counters, before: Counters, seconds: float) -> Float:
        grown = (now.waiting - before.waiting) / seconds
        whole = np.maximum(self._weighted(now, before) / seconds + grown * self._mean(now), 0.0)
        # Where the queue has grown and no mean is known, the counted tokens alone would pass for a small load.
        counted = np.where(grown > 0, np.nan, self._weighted(now, before) / seconds)
        return np.where(np.isfinite(whole), whole, counted)

    def _weighted(self, now: Counters, before: Counters) -> Float:
        prompt, answer = now.prompt - before.prompt, now.answer - before.answer
        return np.asarray(self.weights[:, 0] * prompt + self.weights[:, 1] * answer, np.float64)

    def _mean(self, now: Counters) -> Float:
        """(N,) weighted tokens of a request that was over in the last ten minutes; NaN where none was."""
        before = self._seen[0]
        over = now.over - before.over
        return np.where(over > 0, self._weighted(now, before) / np.where(over > 0, over, 1.0), np.nan)

    def _peaks(self) -> NDArray[Any]:
        """Return the pods (N, S) now, with the most that each held and had waiting in the last minute."""
        now = self.level.fleet.pod.copy()
        self._pods.append(now.copy())
        for before in self._pods:
            same = (before["number"] == now["number"]) & (before["phase"] == READY)
            for name in ("held", "waiting"):
                now[name] = np.where(same, np.maximum(before[name], now[name]), now[name])
        return now

    def _lengths(self, now: Counters) -> tuple[Float, Float]:
        """Return the mean tokens (N,) of a prompt and of an answer in five minutes, over the requests that were
        answered; NaN where none was."""
        before = self._before(LENGTH_SECONDS)
        done = np.where(now.done > before.done, now.done - before.done, np.nan)
        return (now.prompt - before.prompt) / done, (now.answer - before.answer) / done

    def near(self) -> Float:
        """(N,) the worse of the 95th percentiles of TTFT and TPOT, each over its objective, as in the operator."""
        now, before, services = self._seen[-1], self._before(WINDOW_SECONDS), self.level.services
        first = percentile(now.first - before.first, FIRST_BUCKETS) / services.first_seconds
        token = percentile(now.token - before.token, TOKEN_BUCKETS) / services.token_seconds
        token = np.where(np.isinf(services.token_seconds), 0.0, token)
        shares = np.stack([first, token], axis=1)
        worst = worst_latency(shares)
        return np.where(worst >= 0, shares[np.arange(len(shares)), worst], np.nan)

    def usage(self) -> Float:
        """(N,) percent of the KV cache of the ready replicas; 100 of one of which a tenth of the requests waits."""
        pod = self.level.fleet.pod
        ready = pod["phase"] == READY
        held = pod["held"] / self.level.services.kv_tokens[:, None]
        requests = pod["running"] + pod["joining"] + pod["waiting"]
        full = pod["waiting"] > FULL_WHEN_WAITING * np.maximum(requests, 1)
        used = np.where(full, 1.0, np.minimum(held, 1.0))
        return np.asarray(100 * (used * ready).sum(axis=1) / np.maximum(ready.sum(axis=1), 1), np.float64)

    def samples(self, signal: Signal) -> Samples:
        """Samples in which the replicas are the GPU pool, and the latency is the worse of TTFT and TPOT, in shares of
        the objective of the first token."""
        services, pod = self.level.services, self.level.fleet.pod
        starting, ready = pod["phase"] == STARTING, (pod["phase"] == READY).sum(axis=1)
        oldest = np.where(starting, pod["created"], np.inf).min(axis=1)
        none = np.zeros(len(services), np.int32)
        value, near = self.value(signal), self.near()
        samples = make_samples(
            len(services),
            time=self.level.time,
            arrival_rate=value,
            gpu_utilization=self.usage(),
            # Of no pool here: the KV caches in use, the second number of KEDA on the backlog.
            cpu_utilization=100 * self.value("kv") if signal == "backlog" else np.nan,
            p95_ms=1000 * services.first_seconds * near,
            spec_replicas=np.stack([self.level.fleet.service["target"], none], axis=1),
            ready_replicas=np.stack([ready, none], axis=1),
            pending_seconds=np.stack([np.maximum(self.level.time - oldest, 0.0), none], axis=1),
            stuck_replicas=0,
        )
        samples.pending_seconds[~np.isfinite(samples.pending_seconds)] = 0.0
        return samples


def percentile(counts: Float, bounds: Float, share: float = 0.95) -> Float:
    """(N,) percentile of a histogram (N, B + 1), linear within a bucket as in PromQL; NaN where nothing is counted."""
    total = counts.sum(axis=1)
    upto = np.cumsum(counts, axis=1)
    wanted = share * total
    bucket = np.minimum((upto < wanted[:, None]).sum(axis=1), len(bounds))
    rows = np.arange(len(counts))
    below = np.where(bucket > 0, upto[rows, np.maximum(bucket - 1, 0)], 0.0)
    low = np.where(bucket > 0, bounds[np.maximum(bucket - 1, 0)], 0.0)
    high = bounds[np.minimum(bucket, len(bounds) - 1)]
    part = (wanted - below) / np.maximum(counts[rows, bucket], 1e-12)
    # Beyond the last bound PromQL has that bound.
    value = np.where(bucket >= len(bounds), bounds[-1], low + (high - low) * part)
    return np.where(total > 0, value, np.nan)
