"""What is made of live episodes before they enter an evaluation."""

from pathlib import Path

import numpy as np
import pytest

from rlscaler_live.play import LiveAudit, _check_intervals, _record, check
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import load
from rlscaler_rl.evaluation.settings import EvaluationSettings
from rlscaler_rl.evaluation.tuning.cache import record_of

FIGURES = {"requests": 100.0, "in_time": 90.0, "late": 5.0, "dropped": 4.0, "queued": 1.0, "lost_ticks": 0.0}
FIGURES |= {"dispatch_lag_p99_ms": 12.0}


def test_books_that_balance_hold():
    audit = LiveAudit()
    audit.note(FIGURES)
    assert audit.reasons() == []
    assert {item.name for item in audit.invariants()} == {"requests", "signs", "ticks", "load"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"late": 20.0}, "requests in ="),
        ({"dropped": -1.0, "late": 10.0}, "negative"),
        ({"lost_ticks": 1.0}, "tick"),
        ({"dispatch_lag_p99_ms": 51.0}, "left within 50 ms"),
    ],
)
def test_books_that_do_not_are_named(changes, said):
    audit = LiveAudit()
    audit.note(FIGURES | changes)
    assert any(said in reason for reason in audit.reasons())


def test_only_loads_that_locust_plays_are_taken():
    with pytest.raises(EvaluationError, match="not azure_code"):
        check(EvaluationSettings(workloads=("spike", "azure_code"), extras=False))
    check(EvaluationSettings(workloads=("patterns",), extras=False))


def test_an_interval_that_does_not_fit_the_episode_is_refused_before_anybody_plays():
    loaded, interval = [load("rule", Path())], record_of("rule", "ramp").found["interval"]
    assert 315 % interval
    settings = EvaluationSettings(workloads=("ramp",), extras=False, duration_seconds=315, interval_seconds=45)
    with pytest.raises(EvaluationError, match=rf"--duration 315: Forecast rule.* acts every {interval} s on ramp"):
        _check_intervals("comparison", loaded, settings)
    fits = EvaluationSettings(workloads=("ramp",), extras=False, duration_seconds=300, interval_seconds=30)
    _check_intervals("comparison", loaded, fits)


def test_a_record_holds_what_a_tick_saw_until_the_next(tmp_path):
    (tmp_path / "load.csv").write_text("time,sent,late,failed\n0,10,0,0\n1,20,5,5\n")
    tick = {"arrival_rate": np.nan, "weights": (800, 200), "ready_replicas": (1, 1)}
    timeline = [{**tick, "second": 0.0, "spec_replicas": (1, 1)}, {**tick, "second": 5.01, "spec_replicas": (3, 1)}]
    figures = {"j": 1.0, "cost": 1.0, "late_percent": 0.0}
    record = _record(timeline, figures, str(tmp_path), np.array([20.0, 4.0]), 10)
    assert record["desired"][:, 0].tolist() == [1.0] * 6 + [3.0] * 4
    assert record["arrivals"][:3].tolist() == [10, 20, 0]
    assert record["late_share"][:2].tolist() == [0.0, 0.5]
    assert record["weights_gpu"].tolist() == [0.8] * 10
