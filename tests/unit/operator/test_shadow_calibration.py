"""What a latency histogram allows to say, and replicas of a moment ago."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_core.queueing.fluid import Running
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import Histogram, histogram_of, histograms, promql
from rlscaler_operator.shadow.evidence import interval, turned_above
from rlscaler_operator.shadow.replica_history import empty_history, replicas_at, with_newest


def histogram(received=100.0, **within):
    return Histogram(received, {float(bound.strip("b").replace("_", ".")): count for bound, count in within.items()})


def test_an_slo_on_a_bound_is_known_exactly():
    assert histogram(b0_5=80.0, b1=95.0, binf=98.0).late(1.0) == (5.0, 5.0)


def test_an_slo_between_bounds_is_known_to_lie_between():
    assert histogram(b0_5=80.0, b1=95.0, binf=98.0).late(0.7) == (5.0, 20.0)


def test_refused_requests_are_late():
    assert histogram(received=200.0, b1=95.0, binf=98.0).late(1.0) == (105.0, 105.0)


def test_an_slo_beyond_the_last_bound_leaves_it_open():
    assert histogram(b0_5=80.0, binf=98.0).late(1.0) == (2.0, 20.0)


def test_the_percentiles_bucket():
    assert histogram(b0_5=80.0, b1=96.0, binf=100.0).p95_bucket_ms() == (500.0, 1000.0)
    assert histogram(b0_5=80.0, binf=100.0).p95_bucket_ms() == (500.0, float("inf"))
    assert histogram(binf=0.0).p95_bucket_ms() is None


def test_nothing_is_said_without_arrivals_or_buckets():
    assert Histogram(float("nan"), {1.0: 5.0}).late(1.0) is None
    assert Histogram(5.0).late(1.0) is None


def test_series_are_told_apart_by_service_and_bound():
    def one(value, **labels):
        return {"metric": labels, "value": [0, value]}

    found = histograms(
        [
            one("7", namespace="a", service="chat", le="0.5"),
            one("8", namespace="a", service="chat", le="many"),
            one("9", namespace="a", service="chat", le="+Inf"),
            one("10", namespace="a", service="chat"),
            one("NaN", namespace="a", service="other", le="0.5"),
        ]
    )
    assert found == {("", "a", "chat"): Histogram(10.0, {0.5: 7.0, float("inf"): 9.0})}


def native(buckets, count, **labels):
    histogram = {"count": str(count), "sum": "1", "buckets": [[0, *map(str, bucket)] for bucket in buckets]}
    return {"metric": labels, "histogram": [0, histogram]}


def test_a_native_histogram_is_known_at_the_bounds_of_its_buckets():
    labels = {"namespace": "a", "service": "chat"}
    sample = native([("-Inf", 0.25, 2), (0.5, 0.75, 7), (1, "+Inf", 1)], 10, **labels)
    assert histograms([sample])["", "a", "chat"].within == {0.25: 2, 0.5: 2, 0.75: 9, 1.0: 9, float("inf"): 10}


def test_native_histograms_of_two_pools_whose_buckets_are_others_are_one():
    subject = Subject("a", "chat", ("fast", "slow"), preset="vllm")
    parts = {
        ("vllm", "a", "fast"): Histogram(5.0, {0.25: 0, 0.5: 4, float("inf"): 4}),
        ("vllm", "a", "slow"): Histogram(5.0, {1.0: 0, 2.0: 3, 4.0: 6, float("inf"): 6}),
    }
    whole = histogram_of(parts, subject)
    assert whole.within == {0.25: 0, 0.5: 4, 1.0: 4, 2.0: 7, 4.0: 10, float("inf"): 10}
    parts["vllm", "a", "slow"].within[0.4] = 1
    del parts["vllm", "a", "fast"].within[0.25]
    assert 0.4 not in histogram_of(parts, subject).within, "it lies in a bucket of the other pool"


@pytest.mark.parametrize("names", [{}, {"preset": "vllm"}, {"front_door": "istio"}])
def test_no_maximum_is_taken_of_native_histograms(names):
    """Prometheus leaves them out of a maximum, and so the policy out of calibration."""
    subject = Subject("a", "chat", ("chat", None), **names)
    text = promql([subject], 600)
    whole = re.escape(subject.histogram.metric.partition(" or ")[0])
    folds = re.findall(rf"(\w+) without \(prometheus_replica\) \((\w+)\({whole}{{", text)
    assert set(folds) == {("avg", "increase")}
    assert ("avg by (namespace, service) (sum by (namespace, service, reporter)" in text) == ("front_door" in names)


def test_one_query_names_all_services():
    text = promql([Subject("a", "chat.v1", (None, None)), Subject("b", "plain", (None, None))], 600)
    assert text.count('service=~"(chat\\\\.v1|plain)"') == text.count("[600s]") == 12


@given(st.lists(st.floats(0.5, 20), min_size=1, max_size=60), st.floats(0, 60))
def test_the_history_gives_the_replicas_of_then(waits, ago):
    history, now, seen = empty_history(1), 0.0, []
    for number, wait in enumerate(waits):
        now += wait
        count = np.array([[number, 0]], np.int32)
        history = with_newest(history, np.array([now]), Running(count, count, np.ones((1, 2))))
        seen.append((now, number))
    found = replicas_at(history, np.array([now - ago])).spec[0, 0]
    exact = max((number for time, number in seen if time <= now - ago), default=0)
    near = [number for time, number in seen if abs(time - (now - ago)) <= 5]
    assert found == exact or found in near or now - ago < history.time[0][~np.isnan(history.time[0])].min()


def test_the_interval_narrows_and_needs_a_few_days():
    rng = np.random.default_rng(0)
    days = rng.standard_normal(90)
    assert interval(days[:3], 0.01, 0.0).high == float("inf")
    widths = [interval(days[:n], 0.01, 0.0).high - interval(days[:n], 0.01, 0.0).low for n in (10, 30, 90)]
    assert widths == sorted(widths, reverse=True)
    assert interval([1.0] * 30, 0.01, 0.5).high > 1.1


@given(st.floats(-1e3, 1e3), st.floats(0.1, 10), st.integers(8, 40), st.integers(0, 100))
def test_intervals_move_and_stretch_with_the_days(shift, factor, n, seed):
    days = np.random.default_rng(seed).standard_normal(n)
    plain, moved = interval(days, 0.05, 0.0), interval(days * factor + shift, 0.05, 0.0)
    np.testing.assert_allclose(moved, np.array(plain) * factor + shift, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("law", ["normal", "t3"])
def test_looking_every_day_finds_nothing_where_nothing_is(law):
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(200):
        days = rng.standard_normal(60) if law == "normal" else rng.standard_t(3, 60)
        wrong += any(interval(days[:n], 0.05, 0.0).high < 0 for n in range(7, 61))
    assert wrong <= 0.05 * 200


def test_a_turn_is_seen_whatever_came_before():
    rng = np.random.default_rng(4)
    before = rng.standard_normal(70) - 1
    assert not turned_above(before, 0.0, 10_000, 0.0)
    assert turned_above([*before, *(rng.standard_normal(20) + 2)], 0.0, 10_000, 0.0)
