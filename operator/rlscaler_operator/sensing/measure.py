"""Turns answers of Prometheus and the watch cache into the samples that one policy is decided upon. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlscaler_core.decision.tables import make_samples
from rlscaler_core.decision.types import CPU, GPU, POOLS, SIGNALS, Samples
from rlscaler_operator.sensing.queries import REPLACES, Subject, latency_name, own_name
from rlscaler_operator.sensing.results import (
    NOTHING,
    Answers,
    Reading,
    absent,
    arrivals,
    per_replica,
    pick,
    ratio,
    unknown,
)

Readings = dict[str, Reading]
"""Readings by the names of `SIGNALS`, without replicas."""

PAUSED = "rlscaler.io/paused"
PAUSED_SCALE_DOWN = "rlscaler.io/paused-scale-down"
PAUSED_REPLICAS = "rlscaler.io/paused-replicas-"
MOST_REPLICAS = 10_000
"""The largest number of replicas that the API allows; the shield clamps to the target's own range."""

SHOWN_CHARACTERS = 60
"""Characters of an annotation's value in a message: the message of a condition is limited."""

PAUSES = (PAUSED, PAUSED_SCALE_DOWN, *(PAUSED_REPLICAS + pool for pool in POOLS))
"""All annotations that pause a policy."""

UTILIZATIONS = ("gpu_utilization", "cpu_utilization")
"""Utilization signals in the order of the pools."""

MEASURED = tuple(signal for signal in SIGNALS if signal != "replicas")

SamplesRow = tuple[Any, ...]

ROW = (
    "time",
    *("p95_ms" if signal == "p95_latency" else signal for signal in MEASURED),
    "age_seconds",
    "spec_replicas",
    "ready_replicas",
    "pending_seconds",
    "paused",
    "paused_replicas",
    "paused_scale_down",
)
"""Columns of `Samples` in the order of a `SamplesRow`."""

NO_POOL = absent("a pool that is not there")


def measure(answers: Answers, subject: Subject, ready: tuple[int, int]) -> Readings:
    """Return the readings of one policy; `ready` are the ready replicas of the GPU and the CPU pool."""
    namespace, names = subject.namespace, subject.deployments
    service = (namespace, subject.service)

    def of(query: str, pool: int) -> Reading:
        name = names[pool]
        return pick(answers.get(query, {}), (namespace, name)) if name else NO_POOL

    pools = [pool for pool in (GPU, CPU) if names[pool]]
    here = [ready[pool] for pool in pools]
    received = pick(answers.get("arrival_rate", {}), service)
    readings = {
        "arrival_rate": arrivals(received, {POOLS[pool]: ready[pool] for pool in pools}),
        "cpu_utilization": ratio([of("cpu_usage", CPU)], [of("cpu_request", CPU)], [ready[CPU]]),
        "memory_utilization": ratio(
            [of("memory_usage", pool) for pool in pools], [of("memory_request", pool) for pool in pools], here
        ),
        "gpu_utilization": per_replica(of("gpu_utilization", GPU), ready[GPU]),
        "p95_latency": pick(answers.get("p95_ms", {}), service),
    }
    for name, promql in subject.queries:
        readings[REPLACES[name][0]] = pick(answers[own_name(name, promql)], NOTHING)
    return readings


def shown_latency(answers: Answers, subject: Subject, readings: Readings) -> Reading:
    """Return the reading of the latency percentile that is displayed, in milliseconds."""
    name = latency_name(subject.percentile)
    if name == "p95_ms":
        return readings["p95_latency"]
    return pick(answers.get(name, {}), (subject.namespace, subject.service))


def nothing_measured() -> Readings:
    """Return the readings before the first tick: nothing is known."""
    return {signal: absent("this policy yet") for signal in MEASURED}


def samples_row(
    readings: Readings,
    elapsed_seconds: float,
    time: float,
    replicas: tuple[int, int],
    ready: tuple[int, int],
    annotations: Mapping[str, str],
    pending_seconds: tuple[float, float] = (0.0, 0.0),
    may_lower: bool = True,
) -> SamplesRow:
    """Return the columns `ROW` of one policy. The `elapsed_seconds` since the readings are added to their ages.

    `time` is in unix seconds; `replicas`, `ready` and `pending_seconds` are of the GPU and the CPU pool. Without
    `may_lower` nothing is scaled down, as if the annotations forbade it.
    """
    paused, paused_replicas, paused_scale_down, _ = pauses(annotations)
    measured = [readings[signal] for signal in MEASURED]
    return (
        time,
        *[reading.value for reading in measured],
        (*[reading.age_seconds + elapsed_seconds for reading in measured], 0.0),
        replicas,
        ready,
        pending_seconds,
        paused,
        paused_replicas,
        paused_scale_down or not may_lower,
    )


def may_lower(readings: Readings, max_age_seconds: float) -> bool:
    """Return True where these readings allow to scale down. A reading that is too old is unknown and has no say."""
    return all(reading.may_lower or reading.age_seconds > max_age_seconds for reading in readings.values())


def samples_of(rows: Sequence[SamplesRow]) -> Samples:
    """Make one table of the rows of several policies."""
    return make_samples(
        len(rows), **{name: list(column) for name, column in zip(ROW, zip(*rows, strict=True), strict=True)}
    )


def pauses(annotations: Mapping[str, str]) -> tuple[bool, tuple[int, int], bool, str]:
    """Return (paused, replicas to keep by pool with -1 = as they are, scale-down paused, what is set in words).

    A value that is no number pauses as well: its author wanted no change.
    """
    if annotations.keys().isdisjoint(PAUSES):
        return False, (-1, -1), False, ""
    wanted, words = [], []
    paused = annotations.get(PAUSED) == "true"
    if paused:
        words.append(f"{PAUSED} holds the replicas")
    for pool in POOLS:
        text = annotations.get(PAUSED_REPLICAS + pool)
        number = text is not None and text.isascii() and text.isdecimal()
        # int() refuses thousands of digits, and an annotation may be as long as 256 KiB.
        wanted.append(min(int(text.lstrip("0")[:9] or 0), MOST_REPLICAS) if text is not None and number else -1)
        if text is not None:
            paused = True
            shown = text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
            valid = "sets" if number else f"= {shown!r} is not a whole number and holds"
            words.append(f"{PAUSED_REPLICAS}{pool} {valid} the {pool} replicas")
    scale_down = annotations.get(PAUSED_SCALE_DOWN) == "true"
    if scale_down:
        words.append(f"{PAUSED_SCALE_DOWN} forbids scaling down")
    return paused, (wanted[0], wanted[1]), scale_down, "; ".join(words)


def missing_signals(
    readings: Readings, present: tuple[bool, bool], replicas: tuple[int, int], max_age_seconds: float
) -> list[tuple[str, Reading]]:
    """Return the signals without which nothing may be scaled down, and why they are unknown; empty = all are known.

    The arrival rate is required, and for each pool with replicas its utilization or the latency. The latency is not
    required while nothing arrives.
    """
    rate = _dated("arrival_rate", readings["arrival_rate"], max_age_seconds)
    missing = [] if rate.known else [("arrival_rate", rate)]
    latency = _dated("p95_latency", readings["p95_latency"], max_age_seconds)
    if latency.known or rate.value == 0:
        return missing
    utilizations = [u for u, here, n in zip(UTILIZATIONS, present, replicas, strict=True) if here and n > 0]
    checked = {signal: _dated(signal, readings[signal], max_age_seconds) for signal in utilizations}
    blind = [(signal, reading) for signal, reading in checked.items() if not reading.known]
    if blind:
        missing += [("p95_latency", latency), *blind]
    return missing


def _dated(signal: str, reading: Reading, max_age_seconds: float) -> Reading:
    """Return the reading itself; unknown where it is too old or negative."""
    if max_age_seconds < reading.age_seconds < math.inf:
        text = f"the newest sample of {signal} is older than maxAgeSeconds = {max_age_seconds:g}"
        return unknown("SampleStale", text, reading.age_seconds)
    if reading.known and (reading.value < 0 or math.isnan(reading.age_seconds)):
        return unknown("NotANumber", f"{signal} is negative", reading.age_seconds)
    return reading
