"""Shadow's model of services whose objectives are on the first and on each further token."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from benchmarks.shadow_tokens import held_against

from rlscaler_core.api.promotion import PromotionStatus
from rlscaler_core.queueing.fluid import initial_meter
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow import comparison
from rlscaler_operator.shadow.calibration import Histogram, Histograms, histograms, promql
from rlscaler_operator.shadow.comparison import Comparison, requirements_of, resumed
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS
from rlscaler_operator.shadow.service_times import ServiceTimes, service_times
from rlscaler_operator.state.registry import Registry
from rlscaler_rl.simulation.tokens.drawn import drawn

SUBJECT = Subject("ns", "chat", ("g", None), preset="vllm", signal="ttft", token_objectives=(2500.0, 100.0))


def window(running: float, waiting: float, first: float = 0.6, token: float = 0.01) -> Histograms:
    """Return a window in which 600 requests got a first token after a mean of `first` seconds."""

    def sample(value: float, name: str, **labels: str) -> dict[str, Any]:
        return {"metric": {"_p": name, "namespace": "ns", "deployment": "g", **labels}, "value": [0, str(value)]}

    return histograms(
        [
            *(sample(600.0, f"vllm {signal}", le="+Inf") for signal in ("ttft", "tpot")),
            sample(600 * first, "vllm ttft spent"),
            sample(600 * token, "vllm tpot spent"),
            sample(600.0, "vllm"),
            sample(running, "vllm running"),
            sample(waiting, "vllm waiting"),
        ]
    )


def test_the_part_of_the_wait_is_no_part_of_the_work_until_the_first_token() -> None:
    times = service_times(window(running=8.0, waiting=0.2), SUBJECT, WINDOW_SECONDS)
    assert times.seconds[0] == pytest.approx(8.0), "Little's law: 8 requests run, and one comes in a second"
    assert times.timed[0] == pytest.approx(0.6 - 0.2)
    assert np.isnan(times.timed[1]), "no CPU pool"


def test_the_slower_of_two_latencies_counts_by_its_objective() -> None:
    times = service_times(window(running=8.0, waiting=0.0, token=0.05), SUBJECT, WINDOW_SECONDS)
    assert times.timed[0] == pytest.approx(0.05 * 2500 / 100)
    assert np.isfinite(times.spread[0])


@pytest.mark.parametrize(("running", "waiting"), [(8.0, 4.0), (0.0, 0.0)])
def test_a_window_in_which_many_wait_or_none_runs_tells_no_time_of_work(running: float, waiting: float) -> None:
    times = service_times(window(running, waiting), SUBJECT, WINDOW_SECONDS)
    assert np.isnan(times.seconds).all()
    assert np.isnan(times.timed).all()


def test_the_sums_of_both_latencies_are_queried() -> None:
    query = promql([SUBJECT], WINDOW_SECONDS)
    assert '"vllm ttft spent"' in query
    assert '"vllm tpot spent"' in query
    assert "vllm:time_to_first_token_seconds_sum" in query


@pytest.fixture
def of_tokens(policy_body: Callable[..., dict[str, Any]]) -> Comparison:
    body = policy_body()
    body["spec"] |= {
        "slo": {"latencyMilliseconds": 1000, "signal": "ttft"},
        "metrics": {"preset": "vllm"},
        "capacity": {"unit": "tokens"},
    }
    for target in body["spec"]["targets"].values():
        target.pop("requestsPerSecond", None)
    return Comparison(Registry().put(body), "basis", acting=False, stack=1)


def windows(of: Comparison, modelled: float, measured: float, count: int) -> None:
    """Compare windows of 600 requests of which so many were late."""
    times = ServiceTimes(np.array([2.0, np.nan]), np.full(2, np.nan), np.array([0.3, np.nan]))
    first = 0 if of.mark is None else int(of.mark.requests[0] / 600)
    for number in range(first + 1, first + count + 1):
        meter = initial_meter(1)
        meter.requests[:] = meter.answered[:] = 600.0 * number
        meter.late[:] = modelled * number
        of.calibrate(meter, Histogram(600.0, {1.0: 600.0 - measured, np.inf: 600.0}), 1000.0, times)


def test_a_replica_of_the_model_carries_more_where_fewer_are_late_than_modelled(of_tokens: Comparison) -> None:
    windows(of_tokens, modelled=120.0, measured=0.0, count=4)
    assert of_tokens.capacity_factor == pytest.approx(comparison.MORE**3), "nothing is known in the first window"
    windows(of_tokens, modelled=0.0, measured=0.0, count=100)
    assert of_tokens.capacity_factor == 1.0, "without late requests the least load that explains them is the stated one"


def test_a_window_that_times_nothing_or_has_few_requests_teaches_nothing(of_tokens: Comparison) -> None:
    unknown = np.full(2, np.nan)
    for number in range(1, 9):
        meter = initial_meter(1)
        meter.requests[:] = meter.answered[:] = 600.0 * number
        meter.late[:] = 120.0 * number
        histogram = Histogram(600.0, {1.0: 600.0, np.inf: 600.0})
        of_tokens.calibrate(meter, histogram, 1000.0, ServiceTimes(unknown, unknown, unknown))
    assert of_tokens.capacity_factor == 1.0


def test_a_replica_of_the_model_carries_less_where_more_are_late(of_tokens: Comparison) -> None:
    windows(of_tokens, modelled=0.0, measured=120.0, count=40)
    assert comparison.LEAST_FACTOR <= of_tokens.capacity_factor < 1.0


def test_what_is_late_for_requests_teaches_the_model_nothing(policy_body: Callable[..., dict[str, Any]]) -> None:
    of_requests = Comparison(Registry().put(policy_body()), "basis", acting=False, stack=1)
    windows(of_requests, modelled=120.0, measured=0.0, count=4)
    assert of_requests.capacity_factor == 1.0


def test_a_restart_goes_on_with_the_learned_load(of_tokens: Comparison) -> None:
    windows(of_tokens, modelled=120.0, measured=0.0, count=4)
    of_tokens.today = "2026-03-02"
    learned = of_tokens.day(np.zeros(6))
    policy, now = of_tokens.policy, datetime(2026, 3, 3, tzinfo=UTC).timestamp()
    basis = requirements_of(policy).basis
    policy.promotion.status = PromotionStatus(
        state="Collecting", since="2026-03-01T00:00:00Z", against="Running", basis=basis, evidence=[learned]
    )
    assert resumed(policy, False, 1, now).capacity_factor == pytest.approx(comparison.MORE**3, abs=1e-4)
    policy.promotion.status.evidence.append(learned.model_copy(update={"capacity_factor": None}))
    assert resumed(policy, False, 1, now).capacity_factor == 1.0, "the newest day counts"
    tomorrow = learned.model_copy(update={"date": "2026-03-04", "capacity_factor": 2.0})
    policy.promotion.status.evidence.append(tomorrow)
    assert resumed(policy, False, 1, now).capacity_factor == 1.0, "the clock was set back"
    for stored, used in ((1e9, comparison.MOST_FACTOR), (1e-9, comparison.LEAST_FACTOR)):
        policy.promotion.status.evidence[-1] = learned.model_copy(update={"capacity_factor": stored})
        assert resumed(policy, False, 1, now).capacity_factor == used
    policy.promotion.status = policy.promotion.status.model_copy(update={"against": "HPAFormula"})
    assert resumed(policy, False, 1, now).capacity_factor == 1.0


@pytest.mark.slow
def test_a_wrong_declaration_is_learned_from_late_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four simulated services that carry a third more than they declare."""
    learned = held_against(drawn(4, round(4.5 * 3600), 5), 0.75)
    monkeypatch.setattr(comparison, "MORE", 1.0)
    monkeypatch.setattr(comparison, "LESS", 1.0)
    fixed = held_against(drawn(4, round(4.5 * 3600), 5), 0.75)
    off, off_fixed = (sum(abs(each.late - each.modelled) for each in held) for held in (learned, fixed))
    assert off < off_fixed / 2, (learned, fixed)
    assert any(each.counts for each in learned), learned
