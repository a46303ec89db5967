import pytest

from rlscaler_operator.sensing.queries import Window
from rlscaler_operator.sensing.results import FORGET_SECONDS, HeldRate, HeldRates, arrivals, group, hold

WINDOW = Window(60, scrape_seconds=15.0)
BEFORE = HeldRate(60.0, taken=1000.0, lag_seconds=1.0, begun=100.0, may_lower=True)


def test_a_rate_whose_newest_sample_stands_still_keeps_its_value():
    assert hold(BEFORE, 5.0, 1000.0, 1040.0, WINDOW) is BEFORE


def test_no_new_sample_is_no_new_value_upwards_either():
    assert hold(BEFORE, 90.0, 1000.0, 1005.0, WINDOW) is BEFORE


@pytest.mark.parametrize("value", [5.0, 90.0])
def test_a_newer_sample_brings_its_value_at_once(value):
    assert hold(BEFORE, value, 1015.0, 1015.5, WINDOW) == HeldRate(value, 1015.0, 0.5, 100.0, may_lower=True)


def test_a_constant_lag_is_no_reason_to_hold():
    seen = BEFORE._replace(lag_seconds=30.0)
    for i in range(1, 10):
        seen = hold(seen, 60.0 - i, 1000.0 + 15 * i, 1030.0 + 15 * i + i % 3, WINDOW)
        assert (seen.value, seen.may_lower) == (60.0 - i, True)


def test_a_newest_sample_that_comes_late_raises_and_does_not_lower():
    assert hold(BEFORE, 20.0, 1015.0, 1031.5, WINDOW) == HeldRate(20.0, 1015.0, 16.5, 100.0, may_lower=False)


def test_a_sample_that_is_dated_ahead_raises_and_does_not_lower():
    assert hold(BEFORE, 5.0, 1600.0, 1015.5, WINDOW) == HeldRate(5.0, 1600.0, 0.0, 100.0, may_lower=False)


def test_a_lag_that_has_grown_for_good_is_believed_from_the_second_sample_on():
    seen = hold(BEFORE, 50.0, 1015.0, 1045.0, WINDOW)
    assert not seen.may_lower
    assert hold(seen, 50.0, 1030.0, 1060.0, WINDOW) == HeldRate(50.0, 1030.0, 30.0, 100.0, may_lower=True)


def test_what_is_seen_first_may_be_the_rest_of_a_window_or_its_begin():
    first = hold(None, 20.0, 1000.0, 1000.1, WINDOW)
    assert hold(first, 20.0, 1000.0, 1005.0, WINDOW) is first
    second = hold(first, 40.0, 1015.0, 1015.1, WINDOW)
    third = hold(second, 60.0, 1030.0, 1030.1, WINDOW)
    assert [one.may_lower for one in (first, second, third)] == [False, False, True]


def test_a_clock_that_is_set_back_does_not_freeze_the_value():
    back = hold(BEFORE, 30.0, 880.0, 881.0, WINDOW)
    assert back == HeldRate(30.0, 880.0, 1.0, 880.0, may_lower=False)
    assert hold(back, 29.0, 895.0, 896.0, WINDOW).value == 29.0


def test_another_replica_of_prometheus_that_is_behind_brings_nothing_new():
    assert hold(BEFORE, 30.0, 990.0, 1001.0, WINDOW) is BEFORE


def test_what_nobody_can_believe_any_more_is_forgotten():
    rates, old, young = HeldRates(WINDOW), (("ns", "old"), ""), (("ns", "young"), "")
    rates.hold(old, 60.0, 1000.0, 1000.0)
    rates.hold(young, 60.0, 1000.0, 1000.0)
    for at in range(1015, 1000 + 2 * int(FORGET_SECONDS), 15):
        rates.hold(young, 60.0, float(at), float(at))
    assert rates._held.keys() == {young}


def series(kind, value, at, pool="gpu"):
    return {"metric": {"namespace": "ns", "service": "chat", "pool": pool, "_": kind}, "value": [at, str(value)]}


def arrive(rates, at, gpu, gpu_time, cpu, cpu_time):
    pools = ("gpu", gpu, gpu_time), ("cpu", cpu, cpu_time)
    found = [series(kind, number, at, pool) for pool, v, t in pools for kind, number in (("v", v), ("t", t))]
    return group(found, "pool", rates)["ns", "chat"]


def test_each_pool_keeps_its_own_and_the_oldest_dates_the_sum():
    rates = HeldRates(WINDOW)
    for at in (970, 985, 1000, 1015):
        arrive(rates, at, 30, at, 10, at)
    fallen = arrive(rates, 1030, 12, 1015, 11, 1030)
    assert (fallen.value, fallen.age_seconds, fallen.may_lower) == (41.0, 15.0, True)
    assert {pool: reading.value for pool, reading in fallen.pools.items()} == {"gpu": 30.0, "cpu": 11.0}
    assert arrivals(fallen, {"gpu": 2, "cpu": 1}).value == 41.0


def test_a_pool_that_is_gone_hands_its_load_over_and_is_not_counted_twice():
    rates = HeldRates(WINDOW)
    for at in (1000, 1015):
        arrive(rates, at, 30, at, 10, at)
    handed = arrive(rates, 1030, 35, 1030, 5, 1015)
    assert arrivals(handed, {"gpu": 2, "cpu": 0}).value == 40.0
    assert arrivals(handed, {"gpu": 2, "cpu": 1}).value == 45.0


def test_a_pool_that_is_gone_before_its_window_was_full_is_no_reason_not_to_lower():
    rates = HeldRates(WINDOW)
    for at in (985, 1000, 1015):
        group([series("v", 30, at), series("t", at, at)], "pool", rates)
    handed = arrive(rates, 1030, 35, 1030, 5, 1030)
    assert not arrivals(handed, {"gpu": 2, "cpu": 1}).may_lower
    assert arrivals(handed, {"gpu": 2, "cpu": 0}).may_lower


def test_a_window_that_had_too_few_samples_has_to_fill_before_its_rate_lowers():
    rates = HeldRates(WINDOW)
    at = {None: [1000, 1060, 1135], 24.0: [1015], 40.0: [1150], 55.0: [1165], 60.0: [1030, 1180, 1195]}
    said = {}
    for moment, value in sorted((moment, value) for value, moments in at.items() for moment in moments):
        numbers = {"t": moment} if value is None else {"t": moment, "v": value}
        reading = group([series(kind, n, moment) for kind, n in numbers.items()], "service", rates)["ns", "chat"]
        said[moment] = reading.reason or reading.may_lower
    assert said == {
        1000: "WindowEmpty",
        1015: False,
        1030: False,
        1060: "WindowEmpty",
        1135: "WindowEmpty",
        1150: False,
        1165: False,
        1180: True,
        1195: True,
    }


def test_the_number_of_pods_is_that_of_now():
    rates = HeldRates(WINDOW)
    for at in (1000, 1015):
        group([series("v", 30, at), series("t", at, at), series("n", 4, at)], "service", rates)
    held = group([series("v", 9, 1025), series("t", 1015, 1025), series("n", 2, 1025)], "service", rates)["ns", "chat"]
    assert (held.value, held.pods) == (30.0, 2)


def test_what_is_no_rate_is_taken_as_it_is():
    for at, value in ((1000, 30), (1005, 9)):
        assert group([series("v", value, at), series("t", 1000, at)], "service")["ns", "chat"].value == value
