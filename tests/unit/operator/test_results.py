import math

import pytest

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing.results import (
    NOTHING,
    Reading,
    arrivals,
    group,
    per_replica,
    percentile_of,
    pick,
    ratio,
    unknown,
)


def series(kind, value, name="chat", at=1000.0):
    return {"metric": {"namespace": "ns", "service": name, "_": kind}, "value": [at, str(value)]}


def test_a_value_has_the_age_of_its_newest_raw_sample():
    readings = group([series("v", 12.5), series("t", 997)], "service")
    assert readings["ns", "chat"] == Reading(12.5, 3.0)


def test_services_are_told_apart():
    readings = group([series("v", 1), series("v", 2, "search"), series("t", 999)], "service")
    assert readings["ns", "search"] == Reading(2.0, math.inf)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_what_is_no_number_is_unknown_never_zero(value):
    reading = group([series("v", value), series("t", 999)], "service")["ns", "chat"]
    assert not reading.known
    assert math.isnan(reading.value)
    assert reading.reason == "NotANumber"


def test_a_window_with_one_sample_is_unknown():
    assert group([series("t", 999)], "service")["ns", "chat"].reason == "WindowEmpty"


def test_no_series_is_unknown():
    assert pick({}, ("ns", "chat")).reason == "SeriesAbsent"


def test_an_error_is_the_reason_of_every_reading():
    reading = pick(MetricsError("connection refused"), ("ns", "chat"))
    assert (reading.known, reading.reason) == (False, "PrometheusUnreachable")


def test_utilization_is_of_the_ready_replicas_of_both_pools():
    usage = [Reading(15.0, 2.0), Reading(20 / 6, 7.0)]
    assert ratio(usage, [Reading(20.0, 0.0), Reading(10.0, 0.0)], [2, 6]) == Reading(50.0, 7.0)


def test_a_pool_without_ready_replicas_is_left_out():
    assert ratio([Reading(5.0, 1.0), unknown("SeriesAbsent", "")], [Reading(10.0, 0.0)] * 2, [1, 0]).value == 50.0


def test_one_unknown_part_makes_the_ratio_unknown():
    result = ratio([Reading(5.0, 1.0), unknown("NotANumber", "")], [Reading(10.0, 0.0)] * 2, [1, 1])
    assert result.reason == "NotANumber"


def test_nothing_ready_is_unknown():
    assert ratio([Reading(5.0, 1.0)], [Reading(10.0, 0.0)], [0]).reason == "NoReadyReplicas"
    assert per_replica(Reading(50.0, 1.0), 0).reason == "NoReadyReplicas"


def test_gpu_utilization_is_the_mean_of_ready_replicas():
    assert per_replica(Reading(75.0, 1.0, pods=2), 2).value == 75.0
    assert per_replica(Reading(150.0, 1.0, pods=1), 1).value == 100.0


def test_pods_without_data_are_not_idle_and_few_with_data_do_not_speak_for_all():
    mean = group([series("v", 80), series("t", 999), series("n", 2)], "service")["ns", "chat"]
    assert per_replica(mean, 4).value == 80.0
    assert per_replica(mean, 5).reason == "SeriesAbsent"
    assert ratio([mean], [Reading(100.0, 0.0)], [4]).value == 80.0
    assert ratio([mean], [Reading(100.0, 0.0)], [5]).reason == "SeriesAbsent"


def of_pools(**values):
    found = []
    for pool, value in values.items():
        for kind, number in (("v", value), ("t", 999)):
            one = series(kind, number)
            found.append(one | {"metric": one["metric"] | ({"pool": pool} if pool != "none" else {})})
    return group(found, "pool")["ns", "chat"]


def test_arrivals_are_summed_over_pools():
    assert arrivals(of_pools(gpu=30, cpu=10), {"gpu": 1, "cpu": 1}).value == 40.0


def test_a_pool_whose_exporter_died_makes_the_load_unknown_not_smaller():
    assert arrivals(of_pools(cpu=10), {"gpu": 2, "cpu": 1}).reason == "SeriesAbsent"
    assert arrivals(of_pools(gpu="NaN", cpu=10), {"gpu": 2, "cpu": 1}).reason == "NotANumber"


def test_a_rate_that_outlives_its_series_is_no_longer_counted():
    found = [series("v", 30), series("v", 10), series("t", 999)]
    for one, pool in zip(found, ("gpu", "cpu", "cpu"), strict=True):
        one["metric"]["pool"] = pool
    whole = group(found, "pool")["ns", "chat"]
    assert arrivals(whole, {"gpu": 2, "cpu": 1}).reason == "SeriesAbsent"
    left = arrivals(whole, {"gpu": 0, "cpu": 1})
    assert (left.value, left.age_seconds) == (10.0, 1.0)


def test_a_pool_without_ready_replicas_need_not_be_seen():
    assert arrivals(of_pools(cpu=10), {"gpu": 0, "cpu": 1}).value == 10.0


@pytest.mark.parametrize("pools", [{"none": 10}, {"a100": 10}, {"none": 7, "gpu": 3}])
def test_a_service_with_other_labels_or_none_is_taken_whole(pools):
    assert arrivals(of_pools(**pools), {"gpu": 1, "cpu": 1}).value == 10.0


def test_the_oldest_pool_dates_the_sum():
    late = [series("v", 1) | {}, series("t", 900)]
    for one in late:
        one["metric"]["pool"] = "gpu"
    fresh = [series("v", 2), series("t", 999)]
    for one in fresh:
        one["metric"]["pool"] = "cpu"
    assert group(late + fresh, "pool")["ns", "chat"].age_seconds == 100.0


def test_two_answers_about_one_service_are_unknown_unless_they_agree():
    twice = [series("v", 60), series("v", 6), series("t", 990), series("t", 997)]
    assert group(twice, "service")["ns", "chat"].reason == "SeriesAmbiguous"
    assert group([series("v", 60), series("v", 60), series("t", 999)], "service")["ns", "chat"].value == 60
    assert group([series("v", 6), series("t", 990), series("t", 997)], "service")["ns", "chat"].age_seconds == 10


def own(kind, value, at=1000.0):
    return {"metric": {"_": kind, "any": "label"}, "value": [at, str(value)]}


def test_a_query_of_the_users_own_gives_one_sample_with_its_age():
    assert group([own("v", 7), own("t", 990)], "nothing")[NOTHING] == Reading(7.0, 10.0)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ([], "SeriesAbsent"),
        ([own("t", 990)], "SeriesAbsent"),
        ([own("v", 7), own("v", 7)], "SeriesAmbiguous"),
        ([own("v", "NaN"), own("t", 990)], "NotANumber"),
        ([own("v", "+Inf")], "NotANumber"),
    ],
)
def test_anything_but_one_number_is_unknown(result, reason):
    reading = group(result, "nothing")[NOTHING]
    assert not reading.known
    assert reading.reason == reason


def test_native_histograms_of_two_pools_have_one_percentile():
    def native(name, *buckets):
        histogram = {"count": str(sum(count for *_, count in buckets)), "sum": "1", "buckets": buckets}
        labels = {"namespace": "ns", "deployment": name}
        yield {"metric": labels | {"_": "v"}, "histogram": [1000, histogram]}
        yield {"metric": labels | {"_": "t"}, "value": [1000, "998"]}

    answer = [*native("fast", (0, "0.25", "0.5", 16)), *native("slow", (0, "1", "2", 2), (0, "4", "+Inf", 2))]
    pools = [group(answer, "deployment, le")["ns", name] for name in ("fast", "slow")]
    latency = percentile_of(pools, 85, 1000)
    assert (latency.value, latency.age_seconds) == (pytest.approx(1500.0), 2.0)


def test_buckets_that_come_and_go_keep_no_replicas():
    newcomer = {"0.5": Reading(1.0, 1.0, may_lower=False), "1": Reading(2.0, 1.0), "inf": Reading(2.0, 1.0)}
    assert percentile_of([Reading(0.0, 1.0, pools=newcomer)], 90, 1000).may_lower
    newcomer["inf"] = Reading(2.0, 1.0, may_lower=False)
    assert not percentile_of([Reading(0.0, 1.0, pools=newcomer)], 90, 1000).may_lower


def test_a_bucket_whose_bound_is_no_number_is_left_out():
    buckets = {"0.5": 9.0, "many": 7.0, "": 3.0, "NaN": 1.0, "+Inf": 10.0}
    histogram = Reading(0.0, 1.0, pools={le: Reading(value, 1.0) for le, value in buckets.items()})
    assert percentile_of([histogram], 90, 1000).value == pytest.approx(500.0)
