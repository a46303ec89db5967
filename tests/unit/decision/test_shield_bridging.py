"""The floor does not count replicas that are still starting where the other pool is ready sooner."""

import numpy as np

from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.tables import initial_state, make_params, make_samples

PARAMS = {
    "requests_per_second": (20.0, 4.0),
    "cold_start_seconds": (45.0, 8.0),
    "target_utilization": 0.8,
    "start_seconds": 0.0,
    "max_replicas": 10,
}


def desired(arrival_rate: float, spec: tuple[int, int], ready: tuple[int, int], **params: object) -> list[int]:
    samples = make_samples(1, arrival_rate=arrival_rate, spec_replicas=spec, ready_replicas=ready)
    decision, _, _ = decide(make_params(1, **(PARAMS | params)), initial_state(1, 4), samples, kind="floor")
    return np.asarray(decision.desired)[0].tolist()


def test_quick_pool_bridges_what_the_slow_one_is_starting() -> None:
    assert desired(80.0, (6, 1), (6, 1)) == [6, 1], "96 req/s at 80 % are enough once ready"
    assert desired(80.0, (6, 1), (4, 1)) == [6, 5], "64 are ready: five CPU replicas carry the other 16"


def test_bridging_ends_at_the_quick_pools_limit_and_adds_nothing_to_the_slow_one() -> None:
    assert desired(80.0, (6, 1), (1, 1)) == [6, 10]


def test_the_slow_pool_does_not_bridge_the_quick_one() -> None:
    assert desired(20.0, (1, 4), (1, 0)) == [1, 4]


def test_equally_quick_pools_do_not_bridge_each_other() -> None:
    assert desired(80.0, (6, 1), (1, 1), cold_start_seconds=(45.0, 45.0)) == [6, 1]
