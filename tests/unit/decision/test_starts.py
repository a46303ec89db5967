"""Starts that have a price: replicas are held as long as a start is worth, and bursts are not extrapolated."""

import numpy as np
import pytest

from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.starts import hold_seconds, price_of_starting
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.models import load_bundled
from rlscaler_operator.records.rows import decode_params, encode

RULE = load_bundled("rule")
SENSE, INTERVAL = 5, 30


def gpu_alone(**columns):
    return make_params(
        1,
        present=[True, False],
        requests_per_second=20.0,
        max_replicas=50,
        learns_capacity=False,
        window_seconds=10.0,
        sense_seconds=float(SENSE),
        interval_seconds=float(INTERVAL),
        **columns,
    )


def replicas_under(params, rates):
    """GPU replicas of every sensing tick, which are ready at once."""
    state, now, seen = initial_state(1, 1), np.array([1, 0], np.int32), []
    for tick, rate in enumerate(rates):
        samples = make_samples(
            1,
            time=1e6 + SENSE * tick,
            arrival_rate=float(rate),
            gpu_utilization=min(5.0 * rate / now[0], 100.0),
            p95_ms=100.0,
            spec_replicas=now,
            ready_replicas=now,
        )
        state = sense(params, state, samples)
        acts = SENSE * tick % INTERVAL == 0
        decision, _, state = decide(params, state, samples, RULE if acts else None, kind="action" if acts else "floor")
        now = decision.desired[0]
        seen.append(int(now[0]))
    return np.array(seen)


def trains(gap_seconds, bursts=5):
    """Bursts of half a minute at 100 requests/s with next to nothing between them."""
    return np.tile(np.r_[np.full(30 // SENSE, 100.0), np.full(gap_seconds // SENSE, 2.0)], bursts)


def started(replicas):
    return int(np.maximum(np.diff(replicas), 0).sum())


def test_between_the_bursts_of_a_train_replicas_stay():
    free, priced = (replicas_under(gpu_alone(start_seconds=price), trains(210)) for price in (0.0, 120.0))
    assert priced[60:].min() >= 5
    assert 10 * started(priced[60:]) < started(free[60:])


def test_a_load_that_does_not_come_back_frees_the_replicas_once_a_start_is_paid_for():
    params = gpu_alone()
    replicas = replicas_under(params, np.r_[np.full(60, 100.0), np.full(240, 2.0)])
    held = SENSE * (np.flatnonzero(replicas >= 5)[-1] - 59)
    most = hold_seconds(params, np.array([2.0]), np.array([0.5]))[0, 0]
    assert params.start_seconds[0, 0] < held <= most + 2 * INTERVAL
    assert replicas[-1] == 1


def test_the_begin_of_a_burst_is_not_taken_for_a_line():
    rates = np.r_[np.full(60, 5.0), np.linspace(5, 100, 7), np.full(60, 100.0)]
    assert replicas_under(gpu_alone(), rates).max() <= 9 < replicas_under(gpu_alone(start_seconds=0.0), rates).max()


def test_a_dearer_start_is_held_for_longer_and_begun_more_rarely():
    cheap, dear = gpu_alone(start_seconds=30.0), gpu_alone(start_seconds=300.0)
    load, price = np.array([100.0]), np.array([0.5])
    assert hold_seconds(cheap, load, price)[0, 0] < hold_seconds(dear, load, price)[0, 0]
    assert price_of_starting(cheap) < price_of_starting(dear)
    assert hold_seconds(dear, load, price)[0, 1] == 0


def test_consumers_of_a_stream_are_not_held():
    params = gpu_alone(stream=True)
    assert not hold_seconds(params, np.array([100.0]), np.array([0.0])).any()


@pytest.mark.parametrize("cold", [1.0, 45.0, 600.0])
def test_without_a_price_a_start_costs_an_image_pull_and_a_drain(cold):
    assert make_params(1, cold_start_seconds=cold).start_seconds[0].tolist() == [30 + 2 * cold] * 2


def test_a_record_of_a_release_before_replays_with_free_starts():
    row = encode(gpu_alone())
    assert decode_params(row).start_seconds[0, 0] == 120
    del row["start_seconds"]
    assert not decode_params(row).start_seconds.any()


def replicas_after_a_drop(utilization):
    """GPU replicas of an action each at 100, then 60 requests/s, with eight replicas that show this utilization."""
    params, state = gpu_alone(start_seconds=30.0), initial_state(1, 1)
    for tick in range(40):
        samples = make_samples(
            1,
            time=1e6 + INTERVAL * tick,
            arrival_rate=100.0 if tick < 3 else 60.0,
            gpu_utilization=utilization,
            p95_ms=100.0,
            spec_replicas=np.array([8, 0], np.int32),
            ready_replicas=np.array([8, 0], np.int32),
        )
        state = sense(params, state, samples)
        decision, _, state = decide(params, state, samples, RULE)
    return int(decision.desired[0, 0])


def test_replicas_that_are_in_use_stay_whatever_is_believed_of_their_capacity():
    assert replicas_after_a_drop(37.5) == 4, "60 of 160 requests/s"
    assert replicas_after_a_drop(np.nan) == 4
    assert replicas_after_a_drop(50.0) == 5, "half of eight at 92 %"
    assert replicas_after_a_drop(100.0) == 5, "a utilization that is always full holds a third more, not all of a peak"
