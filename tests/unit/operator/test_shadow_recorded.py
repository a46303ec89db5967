"""Shadow's model against windows that were recorded at real servers under a load of independent users."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.tables import make_params, make_samples
from rlscaler_core.queueing.fluid import initial_meter
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import Histogram, histogram_of, histograms
from rlscaler_operator.shadow.comparison import Comparison
from rlscaler_operator.shadow.evidence import agrees
from rlscaler_operator.shadow.service_times import ServiceTimes, service_times
from rlscaler_operator.shadow.simulation import advance_meters, new_simulation
from rlscaler_operator.shadow.verdict import REMEDY
from rlscaler_operator.state.registry import Registry
from tests.harness.setup import REPOSITORY

RECORDED = json.loads((REPOSITORY / "tests/data/shadow/servers.json").read_text())
LLAMA = Subject("ns", "llama", (None, "llama"), preset="llamacpp", front_door="envoy")
SUBJECTS = {
    "ray": Subject("ns", "default", (None, "ray"), preset="rayserve"),
    "llama": LLAMA,
    "quiet llama": LLAMA,
}
STEPS = 10


def answer(subject: Subject, window: dict[str, Any]) -> list[dict[str, Any]]:
    """What Prometheus said of a window; bounds and sums of both front doors are in milliseconds."""

    def one(value: float, preset: str, **labels: str) -> dict[str, Any]:
        (key,) = subject.identified_by(preset.split()[0]).values()
        named = {"_p": preset, "namespace": key[0], "service": key[1]}
        return {"metric": named | labels, "value": [0, str(value)]}

    door, server = subject.counted_by, subject.preset
    return [
        *(one(count, door, le=bound) for bound, count in window["within"].items()),
        one(window["received"], door),
        one(window["spent"], f"{door} spent"),
        one(window["running"], f"{server} running"),
        one(window["waiting"], f"{server} waiting"),
    ]


def samples_at(now: float, rate: float) -> Any:
    one = [[0, 1]]
    return make_samples(1, time=now, arrival_rate=rate, age_seconds=0.0, spec_replicas=one, ready_replicas=one)


def compared(made: Comparison, name: str, slo_ms: float, carries: float) -> None:
    """Let the model play what arrived in each window, and hold it against what was measured there."""
    params = make_params(1, present=[[False, True]], requests_per_second=[[1.0, carries]], slo_ms=slo_ms)
    simulation, now = new_simulation(params, samples_at(0.0, 0.0), 1), 0.0
    for window in RECORDED[name]["windows"]:
        step = window["seconds"] / STEPS
        for _ in range(STEPS):
            now += step
            simulation, _ = advance_meters(
                simulation,
                samples_at(now, window["arrivals"] / window["seconds"]),
                np.array([[0.0, 1.0]]),
                step,
                np.array([True]),
                None,
                ServiceTimes(*(each[None] for each in made.times)),
            )
        found = histograms(answer(SUBJECTS[name], window))
        times = service_times(found, SUBJECTS[name], window["seconds"])
        made.calibrate(simulation.real, histogram_of(found, SUBJECTS[name]), slo_ms, times)
    made.params = params


@pytest.fixture
def made(policy_body: Callable[..., dict[str, Any]]) -> Comparison:
    return Comparison(Registry().put(policy_body()), "basis", acting=False, stack=1, today="2026-03-02")


@pytest.mark.parametrize(
    ("name", "slo_ms"), [("ray", 500.0), ("llama", 2500.0), ("quiet llama", 2500.0), ("quiet llama", 10_000.0)]
)
def test_evidence_counts(made: Comparison, name: str, slo_ms: float) -> None:
    """Also with an objective of a hundred times what a request takes, where the model's own histogram is coarse."""
    compared(made, name, slo_ms, RECORDED[name]["carries"])
    assert made.measured is not None
    assert made.measured.windows >= 4
    assert agrees(made.measured), (made.measured, made.times)


@pytest.mark.parametrize(
    ("carries", "said"), [(5.0, "slower than the service"), (1.5, "even one at a time it carries")]
)
def test_the_message_says_what_is_wrong_with_the_capacity(made: Comparison, carries: float, said: str) -> None:
    compared(made, "ray", 500.0, carries)
    assert made.measured is not None
    assert not agrees(made.measured)
    assert said in made.remedy()


def test_a_histogram_that_lags_behind_its_counter_makes_nothing_late(made: Comparison) -> None:
    """Envoy sums up its histograms every 5 s: windows have up to 5 requests more, or fewer, than answers."""
    compared(made, "quiet llama", 2500.0, RECORDED["quiet llama"]["carries"])
    assert made.measured is not None
    assert made.measured.late_at_most == 0.0


def window(received: float, within: Sequence[tuple[float, float]]) -> Histogram:
    return Histogram(received, dict(within))


def test_requests_in_flight_come_and_go_without_being_late(made: Comparison) -> None:
    """In flight: 0, 5, 0, 5, 0. Those of a window's end are answered in the next; only once may they count as late."""
    meter, late = initial_meter(1), []
    for growth in (0, 5, -5, 5, -5, 5, -5):
        meter.requests[:] += 100
        meter.answered[:] += 100
        made.calibrate(meter.copy(), window(100.0 + max(growth, 0), [(1.0, 100.0 - min(growth, 0))]), 1000.0)
        late.append(0.0 if made.measured is None else made.measured.late)
    assert late == [0.0] + 6 * [5.0]


def test_refused_requests_stay_late(made: Comparison) -> None:
    meter = initial_meter(1)
    for _ in range(4):
        meter.requests[:] += 100
        meter.answered[:] += 100
        made.calibrate(meter.copy(), window(100.0, [(1.0, 80.0)]), 1000.0)
    assert made.measured is not None
    assert made.measured.windows == 3
    assert made.measured.late == 60.0


def test_a_server_that_does_not_tell_what_runs_is_named(made: Comparison) -> None:
    made.slower = False
    assert "no series tells what runs from what waits" in made.remedy()
    made.slower = True
    assert made.remedy().endswith(REMEDY)
