"""What stands beside a run in its picture: another run of the same load, and the best constant replicas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_dev.demo.beside import MOST_LATE, Beside, best_constant, other_run
from rlscaler_dev.demo.records import Records
from rlscaler_dev.demo.results import summarise
from rlscaler_dev.demo.settings import CPU_POOL, GPU_POOL
from rlscaler_dev.demo.timeline import build_timeline
from rlscaler_dev.exceptions import RecordError

from .records_fixture import made_up_run, make_records, make_requests, make_run


def steady(rps: float, seconds: int = 120) -> Records:
    """A run in which requests came evenly."""
    at = np.arange(rps * seconds) / rps
    requests = make_requests(*((float(one), 50.0, True) for one in at))
    return make_records(requests=requests, offered_rps=np.full(seconds, rps), run=make_run(duration_s=float(seconds)))


def price(found: Beside) -> float:
    return float(GPU_POOL.cost_per_hour * found.gpu[0] + CPU_POOL.cost_per_hour * found.cpu[0])


def test_the_best_constant_replicas_carry_the_load_and_no_cheaper_ones_do() -> None:
    best = best_constant(steady(100))
    assert best is not None
    carried = best.gpu[0] * GPU_POOL.requests_per_second + best.cpu[0] * CPU_POOL.requests_per_second
    assert 95 < carried <= 100 + GPU_POOL.requests_per_second
    assert best.late_ratio <= MOST_LATE
    assert best.late.sum() == pytest.approx(best.late_ratio * 100 * 120)
    assert best.gpu_hours == pytest.approx(best.gpu[0] * 120 / 3600)
    more = best_constant(steady(125))
    assert more is not None
    assert price(best) < price(more)


def test_a_quiet_load_needs_one_replica_of_each_pool_and_no_number_is_quicker_than_a_request() -> None:
    records = steady(1.0)
    quick = best_constant(records)
    assert quick is not None
    assert (quick.gpu[0], quick.cpu[0]) == (GPU_POOL.min_replicas, CPU_POOL.min_replicas)
    assert best_constant(replace(records, run=replace(records.run, slo_ms=1.0))) is None


def test_another_run_is_told_by_what_its_own_records_say() -> None:
    records = made_up_run()
    hpa = replace(records, run=replace(records.run, contender="hpa"))
    timeline, summary = build_timeline(hpa), summarise(hpa)
    found = other_run(records.run, hpa.run, timeline, summary["gpu_replica_seconds"])
    assert found.label == "HorizontalPodAutoscaler"
    assert found.late_ratio == pytest.approx(summary["slo_violation_ratio"], abs=1e-4)
    assert found.gpu_hours == pytest.approx(summary["gpu_replica_seconds"] / 3600)
    np.testing.assert_array_equal(found.gpu, timeline.gpu_ready)


@pytest.mark.parametrize(
    ("field", "value"), [("seed", 2), ("pattern", "ramp"), ("duration_s", 60.0), ("slo_ms", 500.0)]
)
def test_a_run_of_another_load_is_refused_with_what_differs(field: str, value: object) -> None:
    records: Records = make_records()
    with pytest.raises(RecordError, match=field):
        other_run(records.run, make_run(**{field: value}), build_timeline(records), 1.0)
