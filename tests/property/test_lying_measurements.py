"""Two pools in a closed loop with the rule for six hours, under measurements that lie and declarations that are wrong.

One row for each case, with and without a route that the traffic follows. Replicas start after 45 and 8 seconds, a queue
of more than five seconds of work is refused, and latency follows the queues. No case may end in a collapse, and none
may hold the most replicas for longer than a cold start.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from rlscaler_core.decision.belief import MEASURING_SECONDS
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.tables import initial_state, make_params, make_samples

INTERVAL, HOURS = 15, 6
COLD_START = np.array([3, 1])
"""Action intervals until an ordered replica is ready."""
MOST = np.array([30, 60])
TRUE = np.array([20.0, 4.0])


@dataclass(frozen=True)
class Case:
    """A service and the lie about it."""

    name: str
    gpu: object = None
    """The GPU utilization that is measured in place of the true one, or a function of that and of the time."""
    cpu: object = None
    declared: tuple[float, float] = (20.0, 4.0)
    later: tuple[float, float] = (1.0, 1.0)
    """Factor on the true capacity by pool from the third hour on."""
    empty_hours: float = 0.0


def half(used, time):
    return used / 2


def saturated(used, time):
    return min(used, 93.0)


def of_another_pod(used, time):
    return 50 + 40 * np.sin(time / 97)


CASES = [
    Case("honest"),
    Case("gpu always full", gpu=100.0),
    Case("gpu always idle", gpu=0.0),
    Case("gpu missing", gpu=np.nan),
    Case("gpu always 50", gpu=50.0),
    Case("gpu half of the truth", gpu=half),
    Case("gpu never above 93", gpu=saturated, later=(0.6, 1.0)),
    Case("cpu always full", cpu=100.0),
    Case("cpu always idle", cpu=0.0),
    Case("cpu of another pod", cpu=of_another_pod),
    Case("both always full", gpu=100.0, cpu=100.0),
    Case("declared ten times too high", declared=(200.0, 40.0)),
    Case("declared ten times too low", declared=(2.0, 0.4)),
    Case("capacity halves", later=(0.5, 0.5)),
    Case("capacity of the gpu pool halves", later=(0.5, 1.0)),
    Case("no load for three hours", empty_hours=3.0),
]


def measured(lie, used, time):
    return lie(used, time) if callable(lie) else used if lie is None else lie


@pytest.fixture(scope="module")
def played():
    """Return late shares and intervals at the most replicas (2, N), without and with a route."""
    cases = CASES * 2
    n = len(cases)
    params = make_params(
        n,
        requests_per_second=np.array([case.declared for case in cases]),
        max_replicas=np.tile(MOST, (n, 1)),
        window_seconds=10.0,
        usage_seconds=20.0,
        learns_capacity=True,
        routed=np.arange(n) >= len(CASES),
    )
    state, rule = initial_state(n, 1), Rule()
    asked = [np.tile([3, 10], (n, 1))] * (max(COLD_START) + 1)
    queue, late, requests, most = np.zeros((n, 2)), np.zeros(n), np.zeros(n), np.zeros(n)
    for step in range(HOURS * 3600 // INTERVAL):
        second = step * INTERVAL
        ready = np.stack([np.min([of[:, i] for of in asked[-1 - COLD_START[i] :]], axis=0) for i in (0, 1)], axis=1)
        load = np.array(
            [0.0 if second < 3600 * case.empty_hours else 60 + 40 * np.sin(second / 1800) for case in cases]
        )
        arrivals = load[:, None] * state.weights / 1000
        capacity = ready * TRUE * [case.later if second >= 7200 else (1.0, 1.0) for case in cases]
        used = np.minimum((arrivals + queue / INTERVAL) / np.maximum(capacity, 1e-9), 1.0)
        queue = np.clip(queue + INTERVAL * (arrivals - capacity), 0.0, 5 * capacity)
        latency = 250 + 1000 * queue / np.maximum(capacity, 0.1) + np.maximum(used - 0.9, 0) * 4000
        latency = np.where(arrivals > 0.01 * load[:, None], latency, 0.0)
        late += (arrivals * (latency > 1000)).sum(axis=1)
        requests += load
        seen = [
            [measured(lie, 100 * u, second) for lie, u in zip((c.gpu, c.cpu), us, strict=True)]
            for c, us in zip(cases, used, strict=True)
        ]
        samples = make_samples(
            n,
            time=1e6 + second,
            arrival_rate=load,
            gpu_utilization=np.array(seen)[:, 0],
            cpu_utilization=np.array(seen)[:, 1],
            p95_ms=np.where(load > 0, np.minimum(latency.max(axis=1), 5000.0), np.nan),
            spec_replicas=asked[-1],
            ready_replicas=ready,
        )
        decided = decide(params, sense(params, state, samples), samples, rule)
        state = decided.state
        asked = [*asked[1:], decided.decision.desired]
        most += (decided.decision.desired >= MOST).any(axis=1)
    return (late / requests).reshape(2, -1), most.reshape(2, -1)


@pytest.mark.slow
@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_lie_makes_a_service_late_or_fills_the_cluster(case, routed, played):
    late, most = (of[int(routed), CASES.index(case)] for of in played)
    assert late < 0.1
    first = MEASURING_SECONDS / INTERVAL
    assert most <= max(first, *COLD_START + 1), "the first interval after five minutes takes some back"
