"""Shadow's model beside simulated servers that batch, at low loads, seen through gauges that are read now and then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from rlscaler_core.decision.tables import make_params, make_samples
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.shadow.calibration import histogram_of, histograms
from rlscaler_operator.shadow.comparison import Comparison
from rlscaler_operator.shadow.evidence import WINDOW_SECONDS, is_calibrated
from rlscaler_operator.shadow.service_times import ServiceTimes, service_times
from rlscaler_operator.shadow.simulation import advance_meters, new_simulation
from rlscaler_operator.shadow.verdict import REMEDY
from rlscaler_operator.state.registry import Registry

SCRAPE_SECONDS = 30.0
SENSE_SECONDS = 30.0
RATE_WINDOW = 60.0
WINDOWS = 14
BOUNDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
SUBJECT = Subject("ns", "chat", ("g", None), preset="vllm")


@dataclass(frozen=True)
class Server:
    """It works on up to `slots` requests at a time, each the slower the more there are."""

    slots: int
    alone_seconds: float
    """How long a mean request takes alone."""
    slower: float
    """By which share of that it takes longer for each other one beside it."""
    sigma: float
    """Standard deviation of the logarithm of the work of a request; 0 = all alike."""
    slo_ms: float

    @property
    def carries(self) -> float:
        return self.slots / (self.alone_seconds * (1 + self.slower * (self.slots - 1)))


SLEEPER = Server(slots=4, alone_seconds=0.21, slower=0.0, sigma=0.0, slo_ms=500)
DECODER = Server(slots=8, alone_seconds=1.2, slower=0.08, sigma=0.1, slo_ms=5000)
LONG_ANSWERS = Server(slots=16, alone_seconds=4.0, slower=0.04, sigma=0.8, slo_ms=30_000)


@dataclass(frozen=True)
class Seen:
    """What was going on at a server: per request, and at the moments of the scrapes."""

    arrived: np.ndarray[Any, Any]
    ended: np.ndarray[Any, Any]
    took: np.ndarray[Any, Any]
    at: np.ndarray[Any, Any]
    running: np.ndarray[Any, Any]
    waiting: np.ndarray[Any, Any]


def served(server: Server, rate: Callable[[float], float], seconds: float, seed: int = 3) -> Seen:
    """Play a server by its events; `rate` is in requests/s by the time, at most 1.5 times what it carries."""
    rng = np.random.default_rng(seed)
    most = 1.5 * server.carries
    drawn = np.cumsum(rng.exponential(1 / most, int(most * seconds * 1.2)))
    drawn = drawn[drawn < seconds]
    arrivals = drawn[rng.random(len(drawn)) * most < np.array([rate(at) for at in drawn])]
    work = server.alone_seconds * np.exp(server.sigma * rng.standard_normal(len(arrivals)) - server.sigma**2 / 2)
    left: dict[int, float] = {}
    queue: list[int] = []
    ended = np.full(len(arrivals), np.inf)
    scrapes = np.arange(SCRAPE_SECONDS / 3, seconds, SCRAPE_SECONDS)
    running, waiting = np.zeros(len(scrapes)), np.zeros(len(scrapes))
    now, came, scraped = 0.0, 0, 0
    while now < seconds:
        pace = 1 / (1 + server.slower * max(len(left) - 1, 0))
        first = min(left, key=lambda one: left[one], default=-1)
        ends = now + left[first] / pace if first >= 0 else np.inf
        comes = arrivals[came] if came < len(arrivals) else np.inf
        until = min(ends, comes, seconds)
        while scraped < len(scrapes) and scrapes[scraped] < until:
            running[scraped], waiting[scraped] = len(left), len(queue)
            scraped += 1
        left = {one: work_left - (until - now) * pace for one, work_left in left.items()}
        now = until
        if now == ends:
            del left[first]
            ended[first] = now
        elif now == comes:
            queue.append(came)
            came += 1
        while queue and len(left) < server.slots:
            one = queue.pop(0)
            left[one] = float(work[one])
    return Seen(arrivals, ended, ended - arrivals, scrapes, running, waiting)


def answer(seen: Seen, begin: float, end: float) -> list[dict[str, Any]]:
    """What Prometheus says of a window."""

    def one(value: float, name: str, **labels: str) -> dict[str, Any]:
        return {"metric": {"_p": name, "namespace": "ns", "deployment": "g", **labels}, "value": [0, str(value)]}

    took = seen.took[(seen.ended > begin) & (seen.ended <= end)]
    here = (seen.at > begin) & (seen.at <= end)
    buckets = [one(float(np.sum(took <= bound)), "vllm", le=str(bound)) for bound in (*BOUNDS, np.inf)]
    arrived = float(np.sum((seen.arrived > begin) & (seen.arrived <= end)))
    gauges = [
        one(float(seen.running[here].mean()), "vllm running"),
        one(float(seen.waiting[here].mean()), "vllm waiting"),
    ]
    return [*buckets, one(arrived, "vllm"), one(float(took.sum()), "vllm spent"), *gauges]


def compared(made: Comparison, server: Server, says: float, seen: Seen) -> None:
    """Let the model play what arrived, for a capacity of `says` requests/s, and hold it against what was measured."""
    params = make_params(
        1,
        present=[[True, False]],
        requests_per_second=[[says, 1.0]],
        slo_ms=server.slo_ms,
        window_seconds=RATE_WINDOW,
    )
    simulation = new_simulation(params, samples_at(0.0, 0.0), 1)
    for window in range(WINDOWS):
        for step in range(int(WINDOW_SECONDS / SENSE_SECONDS)):
            now = window * WINDOW_SECONDS + (step + 1) * SENSE_SECONDS
            rate = np.sum((seen.arrived > now - RATE_WINDOW) & (seen.arrived <= now)) / min(RATE_WINDOW, now)
            times = ServiceTimes(*(each[None] for each in made.times))
            simulation, _ = advance_meters(
                simulation,
                samples_at(now, float(rate)),
                np.array([[1.0, 0.0]]),
                RATE_WINDOW,
                np.array([True]),
                None,
                times,
            )
        end = (window + 1) * WINDOW_SECONDS
        found = histograms(answer(seen, end - WINDOW_SECONDS, end))
        times = service_times(found, SUBJECT, WINDOW_SECONDS)
        made.calibrate(simulation.real, histogram_of(found, SUBJECT), server.slo_ms, times)


def samples_at(now: float, rate: float) -> Any:
    return make_samples(
        1, time=now, arrival_rate=rate, age_seconds=0.0, spec_replicas=[[1, 0]], ready_replicas=[[1, 0]]
    )


@pytest.fixture
def made(policy_body: Callable[..., dict[str, Any]]) -> Comparison:
    return Comparison(Registry().put(policy_body()), "basis", acting=False, stack=1, today="2026-03-02")


def counts(made: Comparison) -> bool:
    """Would a day of such windows count?"""
    assert made.measured is not None
    assert made.measured.windows >= WINDOWS - 2
    sums = [WINDOWS * WINDOW_SECONDS, made.measured.requests, 1.0, 1.0, 0.0, 0.0]
    return is_calibrated(made.day(np.array(sums)))


@pytest.mark.slow
@pytest.mark.parametrize("utilization", [0.06, 0.3, 0.6])
@pytest.mark.parametrize("server", [SLEEPER, DECODER, LONG_ANSWERS], ids=["sleeper", "decoder", "long answers"])
def test_evidence_counts_where_the_capacity_is_right(made: Comparison, server: Server, utilization: float) -> None:
    rate = utilization * server.carries
    seen = served(server, lambda at: rate, WINDOWS * WINDOW_SECONDS)
    compared(made, server, server.carries, seen)
    assert counts(made), (made.measured, made.times)


@pytest.mark.slow
@pytest.mark.parametrize("server", [SLEEPER, DECODER], ids=["sleeper", "decoder"])
def test_evidence_counts_over_a_day_of_low_and_high_load(made: Comparison, server: Server) -> None:
    seconds = WINDOWS * WINDOW_SECONDS
    day = served(server, lambda at: server.carries * (0.35 - 0.3 * np.cos(2 * np.pi * at / seconds)), seconds)
    compared(made, server, server.carries, day)
    assert counts(made), (made.measured, made.times)


def test_a_capacity_below_what_the_server_does_one_at_a_time_is_named(
    made: Comparison, policy_body: Callable[..., dict[str, Any]]
) -> None:
    """A sleeper of 0.21 s that is said to carry 1 request/s: no day counts, and the message says what it carries."""
    seen = served(SLEEPER, lambda at: 0.5, WINDOWS * WINDOW_SECONDS)
    compared(made, SLEEPER, 1.0, seen)
    assert made.measured is not None
    assert made.measured.agreeing < made.measured.windows / 2
    made.params = make_params(1, requests_per_second=[[1.0, 4.0]])
    said = made.remedy()
    assert "210 ms, so even one at a time it carries 4.76 requests/s, and not 1" in said
    assert "spec.targets.gpu.requestsPerSecond" in said
    made.params = make_params(1, requests_per_second=[[SLEEPER.carries, 4.0]])
    assert made.remedy().endswith(REMEDY)
