"""The table of guards: what follows from its rows, and what a further row takes."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.guards import GUARDS, STAGES, Guard, without
from rlscaler_core.decision.situation import Situation
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Flag, Int

PARAMS = make_params(1, requests_per_second=(20.0, 4.0), max_replicas=30, target_utilization=1.0)
SAMPLES = make_samples(1, arrival_rate=100.0, spec_replicas=(2, 2), ready_replicas=(2, 2))


def test_the_stages_are_those_of_recorded_decisions() -> None:
    assert (
        *(
            "proposal",
            "unknown",
            "pending",
            "ceiling",
            "grant",
            "behavior",
            "floor",
            "partitions",
            "throughput",
            "budget",
            "limits",
            "pause",
        ),
    ) == STAGES


def test_every_flag_belongs_to_one_guard_or_says_why_the_actor_is_not_followed() -> None:
    owned = [flag for guard in GUARDS for flag in guard.changes | guard.holds]
    assert len(owned) == len(set(owned))
    assert set(Flag) - set(owned) == {Flag.CAPACITY_UNKNOWN, Flag.CAPACITY_BELOW_DECLARED, Flag.OUT_OF_ENVELOPE}


def test_a_row_is_all_that_a_further_guard_takes() -> None:
    def at_most_four(_: Situation, asked: Int) -> Int:
        return np.minimum(asked, 4)

    place = STAGES.index("budget") - 1
    row = Guard("four", at_most_four, "Lets no pool have more than four replicas.", changes=Flag.OUT_OF_ENVELOPE)
    decision, _, _ = decide(
        PARAMS, initial_state(1, 1), SAMPLES, guards=(*GUARDS[:place], row, *GUARDS[place:]), kind="floor"
    )
    whole, _, _ = decide(PARAMS, initial_state(1, 1), SAMPLES, kind="floor")
    assert (whole.desired > 4).any()
    assert decision.trail.shape == (1, len(STAGES) + 1, 2)
    assert decision.desired.tolist() == np.minimum(whole.desired, 4).tolist()
    assert decision.flags.tolist() == [Flag.FLOOR | Flag.OUT_OF_ENVELOPE]


def test_the_table_without_a_row_has_the_others_in_their_order() -> None:
    for guard in GUARDS:
        assert without(guard.name) == tuple(other for other in GUARDS if other is not guard)
