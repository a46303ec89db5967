"""Samples of one policy for its decision, from answers of Prometheus and the watch cache. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from rlscaler_core.api.metrics import ServerName
from rlscaler_core.decision.tables import make_samples
from rlscaler_core.decision.types import CPU, GPU, POOLS, SIGNALS, Samples
from rlscaler_operator.cluster.kinds import titled
from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing import fallbacks
from rlscaler_operator.sensing.joint import worse_of
from rlscaler_operator.sensing.pod_names import LONGEST, told_apart
from rlscaler_operator.sensing.presets import PRESETS, ByPods
from rlscaler_operator.sensing.queries import REPLACES, buckets_name, latency_name, named, own_name
from rlscaler_operator.sensing.requests import MEAN_SECONDS
from rlscaler_operator.sensing.results import (
    NOTHING,
    Answers,
    Key,
    Reading,
    absent,
    arrivals,
    per_replica,
    percentile_of,
    pick,
    ratio,
    total,
    unknown,
)
from rlscaler_operator.sensing.subject import SHOWN_PERCENTILE, WHOLE, Subject

Readings = dict[str, Reading]
"""Readings by the names of `SIGNALS`, without replicas."""

PAUSED = "rlscaler.io/paused"
PAUSED_SCALE_DOWN = "rlscaler.io/paused-scale-down"
PAUSED_REPLICAS = "rlscaler.io/paused-replicas-"
MOST_REPLICAS = 10_000
"""Largest number of replicas that the API allows; the shield clamps to the target's own range."""

NO = ("", "0", "f", "false", "n", "no", "off")
"""Values of an annotation that pause nothing."""

SHOWN_CHARACTERS = 60
"""Most characters of an annotation's value in a message: the message of a condition is limited."""

PAUSES = (PAUSED, PAUSED_SCALE_DOWN, *(PAUSED_REPLICAS + pool for pool in POOLS))
"""All annotations that pause a policy."""

UTILIZATIONS = ("gpu_utilization", "cpu_utilization")
"""Utilization signals in the order of the pools."""

MEASURED = tuple(signal for signal in SIGNALS if signal != "replicas")

REQUEST_RATE = "request_rate"
"""Reading of the arriving requests/s, beside a load in another unit."""

SamplesRow = tuple[Any, ...]

ROW = (
    "time",
    *("p95_ms" if signal == "p95_latency" else signal for signal in MEASURED),
    "age_seconds",
    "spec_replicas",
    "ready_replicas",
    "pending_seconds",
    "stuck_replicas",
    "paused",
    "paused_replicas",
    "paused_scale_down",
    "counted_requests",
    "counted_late",
    "lag_messages",
    "partitions",
    "settling",
    "processed",
)
"""Columns of `Samples` in the order of a `SamplesRow`."""

NOTHING_COUNTED = (math.nan, math.nan)
"""Requests and late ones where no window was counted since the last tick."""

NO_STREAM = (math.nan, 0, False, math.nan)
"""Lag, partitions, rebalance and processed messages/s where the replicas are no consumers."""

NO_POOL = absent("a pool that is not there")

TOO_LONG = (
    f"the names of its pods do not hold its whole name, which has more than {LONGEST} characters: shorten it, or "
    "replace the query in spec.metrics.queries"
)


NO_REQUEST = (
    "a container of the pods of {0} has no {1} request that Prometheus knows: set resources.requests.{1} of every "
    "container, sidecars too; where all have one, scrape kube-state-metrics"
)


def measure(answers: Answers, subject: Subject, ready: tuple[int, int]) -> Readings:
    """Return the readings of one policy; `ready` are the ready replicas of the GPU and the CPU pool."""
    namespace, names = subject.namespace, subject.deployments

    def reading(query: str, pool: int) -> Reading:
        name = names[pool]
        if name is None:
            return NO_POOL
        if _cut(name, subject):
            return unknown("NameTooLong", f"Deployment {name}: {TOO_LONG}")
        return pick(answers.get(query, {}), (namespace, name))

    def request(resource: str, pool: int) -> Reading:
        known = reading(f"{resource}_request", pool)
        if known.reason not in ("SeriesAbsent", "NotANumber"):
            return known
        return unknown("RequestMissing", NO_REQUEST.format(titled(names[pool] or ""), resource), known.age_seconds)

    pools = [pool for pool in (GPU, CPU) if names[pool]]
    exported = subject.server.utilization

    def utilization(pool: int, builtin: Callable[[], Reading]) -> Reading:
        if exported is None or POOLS[pool] not in exported.pools:
            return builtin()
        return per_replica(reading(named(subject.preset, "utilization"), pool), ready[pool])

    ready_pools = {POOLS[pool]: ready[pool] for pool in pools}
    readings = {
        "arrival_rate": arrivals(rate_of(answers, subject, subject.requests.counts_arrivals), ready_pools),
        "cpu_utilization": utilization(
            CPU, lambda: ratio([reading("cpu_usage", CPU)], [request("cpu", CPU)], [ready[CPU]])
        ),
        "memory_utilization": ratio(
            [reading("memory_usage", pool) for pool in pools],
            [request("memory", pool) for pool in pools],
            [ready[pool] for pool in pools],
        ),
        "gpu_utilization": utilization(GPU, lambda: per_replica(reading("gpu_utilization", GPU), ready[GPU])),
        "p95_latency": latency_of(answers, SHOWN_PERCENTILE, subject),
    }
    for name, promql in subject.queries:
        readings[REPLACES[name]] = _own(pick(answers[own_name(name, promql)], NOTHING), name, promql)
    if subject.unit != "requests":
        load = readings.pop("load", None) or arrivals(load_of(answers, subject), ready_pools)
        load = _explained(load, subject)
        readings = readings | {REQUEST_RATE: readings["arrival_rate"], "arrival_rate": load}
    return readings


def _own(reading: Reading, name: str, promql: str) -> Reading:
    """Return the reading of a policy's own query; unknown where only its constant side has a value."""
    part = fallbacks.measured(promql)
    if part.refused:
        return unknown(fallbacks.REASON, fallbacks.refusal_of(name))
    if part.left_out and reading.reason == "SeriesAbsent":
        return unknown(fallbacks.REASON, f"no series answers {fallbacks.warning_of(name, part.left_out)}")
    return reading


def load_of(answers: Answers, subject: Subject) -> Reading:
    """Return the arriving load in a subject's unit other than requests, with its pools."""
    if not subject.counts_load:
        text = f"the preset {subject.preset or 'in use'} does not count {subject.unit}: set spec.metrics.queries.load"
        return unknown("NotExported", text)
    return _sum_of_pools(answers.get(named(subject.preset, f"load {subject.load}"), {}), subject, subject.preset)


def _explained(load: Reading, subject: Subject) -> Reading:
    """Return the load; where tokens are unknown for want of finished requests, its message says so."""
    if load.reason != "WindowEmpty" or subject.unit != "tokens":
        return load
    text = f"{load.message}, or requests wait and none was over in {MEAN_SECONDS} s: their tokens are not known"
    return load._replace(message=text)


def rate_of(answers: Answers, subject: Subject, exported: bool) -> Reading:
    """Return the arrival rate of a service with those of its pools; unknown where it is not `exported`."""
    if not exported:
        return not_exported(subject, "arrivals", "arrivalRate")
    answer = answers.get(named(subject.counted_by, "arrival_rate"), {})
    return _sum_of_pools(answer, subject, subject.counted_by)


def latency_of(answers: Answers, percentile: float, subject: Subject) -> Reading:
    """Return a percentile of the latency, in milliseconds; of two that have an objective the worse one."""
    readings = [_percentile(answers, percentile, latency) for latency in subject.latencies]
    return readings[0] if subject.token_objectives is None else worse_of(readings, subject.token_objectives)


def _percentile(answers: Answers, percentile: float, subject: Subject) -> Reading:
    """Return a percentile of the one latency `subject.signal`, in milliseconds."""
    histogram = subject.histogram
    if histogram is None:
        return not_exported(subject, "latency", "p95Latency")
    preset = subject.timed_by
    if not subject.sums_pools:
        answer = answers.get(named(preset, latency_name(percentile, subject.signal)), {})
        return _sum_of_pools(answer, subject, preset)
    answer = answers.get(named(preset, buckets_name(subject.signal)), {})
    keys = subject.identified_by(preset).values()
    return percentile_of([pick(answer, key) for key in keys], percentile, 1000 / histogram.per_second)


def not_exported(subject: Subject, quantity: str, query: str) -> Reading:
    """Return the unknown reading of a quantity that a preset has no series of."""
    beside = "spec.metrics.frontDoor or " if not subject.front_door and subject.preset in get_args(ServerName) else ""
    text = f"{subject.requests.title} exports no series for it: set {beside}spec.metrics.queries.{query}"
    return unknown("NotExported", f"the preset {subject.counted_by} has no {quantity}: {text}")


def _sum_of_pools(answer: Mapping[Key, Reading] | MetricsError, subject: Subject, preset: str) -> Reading:
    """Return the sum of the readings of a subject's pools, by the series of a preset; unknown where there is none."""
    parts = {pool: _of_target(answer, key, subject, preset) for pool, key in subject.identified_by(preset).items()}
    if WHOLE in parts:
        return parts[WHOLE]
    there = {pool: reading for pool, reading in parts.items() if reading.known or math.isfinite(reading.age_seconds)}
    return total(there) if there else next(iter(parts.values()))


def _cut(name: str, subject: Subject) -> bool:
    """Return True where the names of a target's pods do not hold its whole name."""
    return name not in subject.others and not told_apart(name)


def _of_target(answer: Mapping[Key, Reading] | MetricsError, key: Key, subject: Subject, preset: str) -> Reading:
    if key[1] in subject.deployments and isinstance(PRESETS[preset].identified_by, ByPods) and _cut(key[1], subject):
        return unknown("NameTooLong", f"Deployment {key[1]}: {TOO_LONG}")
    return pick(answer, key)


def shown_latency(answers: Answers, subject: Subject, readings: Readings) -> Reading:
    """Return the reading of the displayed latency percentile, in milliseconds."""
    if subject.percentile == SHOWN_PERCENTILE:
        return readings["p95_latency"]
    return latency_of(answers, subject.percentile, subject)


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
    stuck_replicas: tuple[int, int] = (0, 0),
    may_lower: bool = True,
    counted: tuple[float, float] = NOTHING_COUNTED,
    consumed: tuple[float, int, bool, float] = NO_STREAM,
) -> SamplesRow:
    """Return the columns `ROW` of one policy. The `elapsed_seconds` since the readings are added to their ages.

    `time` is in unix seconds; pairs are of the GPU and the CPU pool. Without `may_lower` nothing is scaled down, as if
    the annotations forbade it. `counted` are requests since the last tick, and the late ones among them; `consumed` are
    waiting messages, partitions with messages, whether the consumer group rebalances, and processed messages/s.
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
        stuck_replicas,
        paused,
        paused_replicas,
        paused_scale_down or not may_lower,
        *counted,
        *consumed,
    )


def may_lower(readings: Readings, max_age_seconds: float) -> bool:
    """Return True where these readings allow scaling down. A reading that is too old is unknown and does not count."""
    measured = [readings[signal] for signal in MEASURED]
    return all(reading.may_lower or reading.age_seconds > max_age_seconds for reading in measured)


def samples_of(rows: Sequence[SamplesRow]) -> Samples:
    """Return one table with the rows of several policies."""
    return make_samples(
        len(rows), **{name: list(column) for name, column in zip(ROW, zip(*rows, strict=True), strict=True)}
    )


def pauses(annotations: Mapping[str, str]) -> tuple[bool, tuple[int, int], bool, str]:
    """Return (paused, replicas by pool with -1 = as they are, scale-down paused, the annotations in words)."""
    if annotations.keys().isdisjoint(PAUSES):
        return False, (-1, -1), False, ""
    wanted: list[int] = []
    words: list[str] = []
    paused = _flag(annotations, PAUSED, "holds the replicas", words)
    for pool in POOLS:
        text = annotations.get(PAUSED_REPLICAS + pool)
        number = text is not None and text.isascii() and text.isdecimal()
        # int() refuses thousands of digits, and an annotation may be as long as 256 KiB.
        wanted.append(min(int(text.lstrip("0")[:9] or 0), MOST_REPLICAS) if text is not None and number else -1)
        if text is not None:
            # A value that is no number pauses as well: its author wanted no change.
            paused = True
            valid = "sets" if number else f"= {_shown(text)} is not a whole number and holds"
            words.append(f"{PAUSED_REPLICAS}{pool} {valid} the {pool} replicas")
    scale_down = _flag(annotations, PAUSED_SCALE_DOWN, "forbids scaling down", words)
    return paused, (wanted[0], wanted[1]), scale_down, "; ".join(words)


def _flag(annotations: Mapping[str, str], name: str, effect: str, words: list[str]) -> bool:
    """Return whether an annotation is in force, and add its effect in `words`; only a word for no turns it off."""
    text = annotations.get(name, "").strip()
    if text.lower() in NO:
        return False
    words.append(f"{name} {effect}" if text.lower() == "true" else f"{name} = {_shown(text)} is not true, and {effect}")
    return True


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")


def missing_signals(
    readings: Readings, present: tuple[bool, bool], replicas: tuple[int, int], max_age_seconds: float
) -> list[tuple[str, Reading]]:
    """Return the required signals that are unknown, without which nothing is scaled down, with their readings.

    The arrival rate is required, and for each pool with replicas its utilization or the latency. The latency is not
    required while nothing arrives.
    """
    rate = _dated("arrival_rate", readings["arrival_rate"], max_age_seconds)
    missing = [] if rate.known else [("arrival_rate", rate)]
    latency = _dated("p95_latency", readings["p95_latency"], max_age_seconds)
    # A known latency shows overload as well as a utilization does; without arrivals there is neither.
    if latency.known or rate.value == 0:
        return missing
    utilizations = [u for u, here, n in zip(UTILIZATIONS, present, replicas, strict=True) if here and n > 0]
    checked = {signal: _dated(signal, readings[signal], max_age_seconds) for signal in utilizations}
    blind = [(signal, reading) for signal, reading in checked.items() if not reading.known]
    if blind:
        missing += [("p95_latency", latency), *blind]
    return missing


def _dated(signal: str, reading: Reading, max_age_seconds: float) -> Reading:
    """Return the reading; unknown where it is too old or negative."""
    if max_age_seconds < reading.age_seconds < math.inf:
        text = f"the newest sample of {signal} is older than maxAgeSeconds = {max_age_seconds:g}"
        return unknown("SampleStale", text, reading.age_seconds)
    if reading.known and (reading.value < 0 or math.isnan(reading.age_seconds)):
        return unknown("NotANumber", f"{signal} is negative", reading.age_seconds)
    return reading
