"""Counters of pods that come and go, as Prometheus gives them."""

import math

import numpy as np
import pytest

from rlscaler_live.environment import LiveEnvironmentError
from rlscaler_live.environment.counters import CounterReader, Totals, counters_query
from rlscaler_operator.sensing.subject import Subject

SUBJECT = Subject("ns", "chat", ("chat-gpu", "chat-cpu"))
BOUNDS = ("0.5", "1.0", "2.0", "+Inf")


def reading(pods, billed=(10.0, 20.0)):
    """`pods`: name -> (received, ended, requests within each of BOUNDS)."""
    series = []
    for pod, (received, ended, within) in pods.items():
        common = {"namespace": "ns", "service": "chat", "instance": pod}
        series.append(({**common, "_": "received"}, received))
        series.append(({**common, "_": "ended", "code": "200"}, ended))
        series += [({**common, "_": "answered", "le": le}, n) for le, n in zip(BOUNDS, within, strict=True)]
    for deployment, seconds in zip(SUBJECT.deployments, billed, strict=True):
        series.append(({"_": "billed", "deployment": deployment}, seconds))
    return [{"metric": labels, "value": [100.0, str(value)]} for labels, value in series]


def test_differences_are_taken_per_pod_so_that_one_that_goes_keeps_its_past():
    meter = CounterReader(SUBJECT)
    meter.begin(reading({"a": (100, 100, (90, 100, 100, 100)), "b": (50, 50, (50, 50, 50, 50))}))
    spent = meter.read(reading({"b": (60, 59, (55, 58, 59, 59))}), 30.0)
    assert (spent.received, spent.ended, spent.timed) == (10, 9, 9)
    assert spent.billed.tolist() == [10.0, 20.0]
    back = meter.read(reading({"a": (103, 103, (93, 103, 103, 103)), "b": (60, 60, (56, 59, 60, 60))}), 30.0)
    assert (back.received, back.ended) == (3, 4)


def test_a_new_pod_counts_from_zero_and_a_restarted_one_too():
    meter = CounterReader(SUBJECT)
    meter.begin(reading({"a": (100, 100, (100, 100, 100, 100))}))
    spent = meter.read(reading({"a": (5, 5, (5, 5, 5, 5)), "new": (7, 7, (7, 7, 7, 7))}), 30.0)
    assert spent.received == 12


def test_what_was_in_time_late_and_refused():
    spent = Totals(30.0, 110, 105, np.array([30.0, 60.0]), bounds(), counts((60, 80, 100, 100)))
    assert spent.within(1.0) == 80
    assert spent.within(0.75) == 70
    assert spent.dropped == 5


def test_percentiles_are_the_clients_who_wait_for_refused_requests_until_they_give_up():
    answered = Totals(30.0, 100, 100, np.zeros(2), bounds(), counts((50, 90, 100, 100)))
    assert answered.percentile_ms(0.5, 5000) == pytest.approx(500)
    assert answered.percentile_ms(0.95, 5000) == pytest.approx(1500)
    refused = Totals(30.0, 200, 200, np.zeros(2), bounds(), counts((50, 90, 100, 100)))
    assert refused.percentile_ms(0.95, 5000) == 5000
    assert math.isnan(Totals().percentile_ms(0.95, 5000))


def test_intervals_add_up_to_the_episode():
    one = Totals(30.0, 100, 100, np.full(2, 5.0), bounds(), counts((50, 90, 100, 100)))
    both = Totals().plus(one).plus(one)
    assert (both.seconds, both.received, both.billed.tolist()) == (60.0, 200, [10.0, 10.0])
    assert both.counts.tolist() == [100, 180, 200, 200]


@pytest.mark.parametrize("kind", ["received", "answered", "billed"])
def test_a_counter_that_is_not_there_is_named(kind):
    names = {"received": "received_total", "answered": "duration_seconds_bucket", "billed": "resource_requests"}
    result = [series for series in reading({"a": (1, 1, (1, 1, 1, 1))}) if series["metric"]["_"] != kind]
    with pytest.raises(LiveEnvironmentError, match=names[kind]):
        CounterReader(SUBJECT).begin(result)


def test_a_service_with_one_pool_asks_for_one_pools_pods():
    query = counters_query(Subject("ns", "chat", ("chat-gpu", None)), 30.0)
    assert "(chat-gpu)-" in query
    assert "None" not in query


def bounds():
    return np.array([float(bound) for bound in BOUNDS])


def counts(values):
    return np.array(values, dtype=float)
