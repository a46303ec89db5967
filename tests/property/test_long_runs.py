"""Replicas are given back: a day of every load, size and pool, held against an HPA of the same target.

`pytest tests/property/test_long_runs.py -s -n0` prints the table.
"""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.guards import GUARDS, without
from tests.harness.long_runs import SERVICES, Day, hours_above, play, table

pytestmark = pytest.mark.slow

MORE = 2
"""GPU replicas (of a pool by itself: its replicas) that small services may have above twice their need."""


@pytest.fixture(scope="module")
def hpa() -> Day:
    return play("hpa")


@pytest.mark.parametrize(
    "decider", ["rule", pytest.param("network", marks=pytest.mark.long), pytest.param("none", marks=pytest.mark.long)]
)
def test_after_a_day_replicas_are_those_of_an_hpa(decider: str, hpa: Day) -> None:
    """Play the forecast rule, the bundled network (up to a `maxReplicas` of 20), and the fallback without an actor.

    Within one (of large pools 5 %), never above twice the need for an hour, and hardly more requests unserved.

    An HPA's tolerance of 10 % may hold a replica less than its own target needs; then the need counts.
    """
    day = play(decider)
    print("", table({decider: day, "hpa": hpa}), sep="\n")
    rival = np.maximum(hpa.at_the_end, hpa.needed_at_the_end)
    above = day.at_the_end - rival > np.maximum(1.0, 0.05 * rival) + 1e-9
    assert not above.any(), [SERVICES[i] for i in np.flatnonzero(above)]
    hours = hours_above(day, 2, MORE)
    assert (hours < 1).all(), [SERVICES[i] for i in np.flatnonzero(hours >= 1)]
    assert (day.short <= hpa.short + 0.2).all()


LEAN = "of 2 of 144 services, with 50 replicas under a noisy day, the network leaves 0.14 % unserved, an HPA 0.01 %"
KNOWN = pytest.mark.xfail(raises=AssertionError, reason=LEAN, strict=True)


@pytest.mark.parametrize(
    "decider",
    [
        "rule",
        pytest.param(
            "network", marks=[pytest.mark.long, pytest.mark.xfail(raises=AssertionError, reason=LEAN, strict=True)]
        ),
        pytest.param("none", marks=pytest.mark.long),
    ],
)
def test_no_more_requests_are_unserved_than_by_an_hpa(decider: str, hpa: Day) -> None:
    more = play(decider).short - hpa.short
    assert (more <= 0.1).all(), [(SERVICES[i], more[i]) for i in np.flatnonzero(more > 0.1)]


@pytest.mark.parametrize("kept", [True, False])
def test_an_actor_that_only_ever_adds_is_held_by_the_ceiling_alone(kept: bool) -> None:
    """The test above can fail: without the guard such an actor ends at the maximum."""
    services = [service for service in SERVICES if service.load in ("5 %", "peak") and service.size == 20]
    hours = hours_above(play("greedy", services, GUARDS if kept else without("ceiling")), 2, MORE)
    assert hours.max() < 1 if kept else hours.min() > 6
