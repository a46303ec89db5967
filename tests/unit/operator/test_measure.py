import math
from dataclasses import replace

import pytest

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.measure import (
    may_lower,
    measure,
    missing_signals,
    nothing_measured,
    pauses,
    samples_of,
    samples_row,
    shown_latency,
)
from rlscaler_operator.sensing.queries import Window, batch, own_name
from rlscaler_operator.sensing.results import NOTHING, Reading
from rlscaler_operator.sensing.subject import Subject

SUBJECT = Subject("ns", "chat", ("chat-gpu", "chat-cpu"))
SERVICE, GPU, CPU = ("ns", "chat"), ("ns", "chat-gpu"), ("ns", "chat-cpu")


def answers(**changed):
    return {
        "arrival_rate": {SERVICE: Reading(20.0, 2.0)},
        "p95_ms": {SERVICE: Reading(300.0, 2.0)},
        "cpu_usage": {GPU: Reading(0.5, 3.0), CPU: Reading(1.5, 3.0)},
        "cpu_request": {GPU: Reading(4.0, 3.0), CPU: Reading(2.0, 3.0)},
        "memory_usage": {GPU: Reading(5.0, 3.0), CPU: Reading(2.5, 3.0)},
        "memory_request": {GPU: Reading(20.0, 3.0), CPU: Reading(5.0, 3.0)},
        "gpu_utilization": {GPU: Reading(60.0, 4.0)},
    } | changed


def missing(readings, present=(True, True), replicas=(2, 2)):
    return [(signal, reading.reason) for signal, reading in missing_signals(readings, present, replicas, 60)]


def test_utilization_is_of_the_cpu_pool_memory_of_both():
    readings = measure(answers(), SUBJECT, (2, 2))
    assert readings["cpu_utilization"].value == 75.0
    assert readings["memory_utilization"].value == pytest.approx(30.0)
    assert readings["gpu_utilization"].value == 60.0


def test_samples_carry_values_and_ages():
    samples = samples_of([samples_row(measure(answers(), SUBJECT, (2, 2)), 1.5, 100.0, (2, 3), (2, 2), {})])
    assert samples.arrival_rate[0] == 20.0
    assert samples.age_seconds[0].tolist() == [3.5, 4.5, 4.5, 5.5, 3.5, 0.0]
    assert samples.spec_replicas.tolist() == [[2, 3]]


@pytest.mark.parametrize("lower", [True, False])
def test_scaling_down_is_held_and_nothing_else(lower):
    readings = measure(answers(), SUBJECT, (2, 2))
    samples = samples_of([samples_row(readings, 0.0, 100.0, (2, 2), (2, 2), {}, may_lower=lower)])
    assert (bool(samples.paused_scale_down[0]), bool(samples.paused[0])) == (not lower, False)


LATE = {"may_lower": False}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"arrival_rate": {SERVICE: Reading(20.0, 2.0, **LATE)}}, False),
        ({"arrival_rate": {SERVICE: Reading(20.0, 61.0, **LATE)}}, True),
        ({"p95_ms": {SERVICE: Reading(300.0, 2.0, **LATE)}}, False),
        ({"cpu_usage": {GPU: Reading(0.5, 3.0), CPU: Reading(1.5, 3.0, **LATE)}}, False),
    ],
)
def test_one_rate_whose_samples_may_have_stopped_is_enough_not_to_lower(changed, expected):
    assert may_lower(measure(answers(**changed), SUBJECT, (2, 2)), 60) == expected


def test_nothing_is_missing_where_all_is_known():
    assert missing(measure(answers(), SUBJECT, (2, 2))) == []


def test_an_unreachable_prometheus_misses_everything_required():
    error = MetricsError("refused")
    readings = measure(
        dict.fromkeys((q.name for q in batch([SUBJECT], Window(10, 2), Window(10, 2))), error), SUBJECT, (2, 2)
    )
    assert missing(readings) == [
        (signal, "PrometheusUnreachable")
        for signal in ("arrival_rate", "p95_latency", "gpu_utilization", "cpu_utilization")
    ]
    assert math.isnan(samples_of([samples_row(readings, 0.0, 0.0, (1, 1), (1, 1), {})]).arrival_rate[0])


def test_either_latency_or_utilization_is_enough():
    assert missing(measure(answers(p95_ms={}), SUBJECT, (2, 2))) == []
    assert missing(measure(answers(cpu_usage={}), SUBJECT, (2, 2))) == []
    both = measure(answers(cpu_usage={}, p95_ms={}), SUBJECT, (2, 2))
    assert missing(both) == [("p95_latency", "SeriesAbsent"), ("cpu_utilization", "SeriesAbsent")]
    assert missing(both, replicas=(2, 0)) == []
    assert missing(both, present=(True, False)) == []


def test_latency_does_not_apply_while_nothing_arrives():
    idle = answers(arrival_rate={SERVICE: Reading(0.0, 1.0)}, p95_ms={}, cpu_usage={}, gpu_utilization={})
    assert missing(measure(idle, SUBJECT, (1, 1))) == []


def test_a_stale_sample_is_missing():
    stale = measure(answers(arrival_rate={SERVICE: Reading(20.0, 61.0)}), SUBJECT, (2, 2))
    assert missing(stale) == [("arrival_rate", "SampleStale")]


def test_nothing_measured_yet_is_all_missing():
    assert len(missing(nothing_measured())) == 4


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, (False, (-1, -1), False)),
        ({"rlscaler.io/paused": "true"}, (True, (-1, -1), False)),
        ({"rlscaler.io/paused": "false"}, (False, (-1, -1), False)),
        ({"rlscaler.io/paused": "True"}, (True, (-1, -1), False)),
        ({"rlscaler.io/paused": "until Monday"}, (True, (-1, -1), False)),
        ({"rlscaler.io/paused": "No"}, (False, (-1, -1), False)),
        ({"rlscaler.io/paused-scale-down": "yes"}, (False, (-1, -1), True)),
        ({"rlscaler.io/paused-replicas-cpu": "4"}, (True, (-1, 4), False)),
        ({"rlscaler.io/paused-replicas-cpu": "99999999999999999999"}, (True, (-1, 10_000), False)),
        ({"rlscaler.io/paused-replicas-cpu": "9" * 5_000}, (True, (-1, 10_000), False)),
        ({"rlscaler.io/paused-replicas-cpu": "0" * 5_000 + "3"}, (True, (-1, 3), False)),
        ({"rlscaler.io/paused-replicas-gpu": "many"}, (True, (-1, -1), False)),
        ({"rlscaler.io/paused-scale-down": "true"}, (False, (-1, -1), True)),
    ],
)
def test_pause_annotations(annotations, expected):
    *values, words = pauses(annotations)
    assert tuple(values) == expected
    assert bool(words) == (expected != (False, (-1, -1), False))


@pytest.mark.parametrize("name", ["paused-replicas-gpu", "paused"])
def test_a_long_annotation_is_not_repeated_whole(name):
    assert len(pauses({f"rlscaler.io/{name}": "x" * 32_768})[3]) < 300


def test_queries_of_the_users_own_are_measured_in_place_of_the_built_in_ones():
    own = (("arrivalRate", "hits"), ("cpuUtilization", "cpu"), ("p95Latency", "latency"))
    subject = replace(SUBJECT, queries=own)
    given = answers()
    for name in ("arrival_rate", "cpu_usage", "cpu_request", "p95_ms"):
        del given[name]
    values = dict(zip(own, (5.0, 40.0, 77.0), strict=True))
    given |= {own_name(*query): {NOTHING: Reading(value, 1.0)} for query, value in values.items()}
    readings = measure(given, subject, (2, 2))
    assert [readings[s].value for s in ("arrival_rate", "cpu_utilization", "p95_latency")] == [5.0, 40.0, 77.0]
    assert readings["memory_utilization"].known
    given[own_name(*own[0])] = MetricsError("bad PromQL", "PrometheusError")
    assert missing(measure(given, subject, (2, 2))) == [("arrival_rate", "PrometheusError")]


def test_the_latency_that_is_shown_may_be_another_percentile():
    readings = measure(answers(), SUBJECT, (2, 2))
    assert shown_latency(answers(), SUBJECT, readings).value == 300.0
    given = answers(p99_ms={SERVICE: Reading(900.0, 2.0)})
    assert shown_latency(given, replace(SUBJECT, percentile=99.0), readings).value == 900.0
    assert not shown_latency(answers(), replace(SUBJECT, percentile=99.0), readings).known


def test_a_deployment_whose_pods_are_not_told_apart_has_no_utilization_and_keeps_its_load():
    long = "x" * 58
    subject = Subject("ns", "chat", (long, None))
    answers = {name: {("ns", long): Reading(50.0, 1.0)} for name in ("gpu_utilization", "memory_usage")}
    answers["arrival_rate"] = {("ns", "chat"): Reading(7.0, 1.0)}
    found = measure(answers, subject, (1, 0))
    assert found["arrival_rate"].value == 7
    assert (found["gpu_utilization"].reason, found["memory_utilization"].reason) == ("NameTooLong", "NameTooLong")
    assert long in found["gpu_utilization"].message
