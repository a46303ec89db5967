"""What the future is worth: the rungs of the ladder, and actors that know it."""

from __future__ import annotations

import numpy as np

from rlscaler_research.ablation.foresight import HINDSIGHT, LADDER, SAME_ACTIONS, by_the_rule, information_report, play
from rlscaler_rl.simulation.privileged import WIDTH, WINDOWS_SECONDS
from rlscaler_rl.workloads import Part, episodes


def test_every_rung_shows_more_and_the_last_everything():
    assert list(LADDER.values()) == [*range(len(WINDOWS_SECONDS) + 1), WIDTH]
    assert list(LADDER)[1:3] == ["15 s", "30 s"]


def test_who_knows_the_spike_does_better_than_who_does_nothing():
    spikes = episodes("spike", Part.TUNE, runs=1, episodes=4)
    widths = []

    def nothing(batch, inputs):
        widths.append(inputs.shape[1])
        return np.tile([0, 0, 1], (len(inputs), 1)).astype(np.int32)

    knowing, idle = play(spikes, by_the_rule), play(spikes, nothing)
    assert (knowing < idle).all()
    assert set(widths) == {12 * 10 + WIDTH}


def test_the_table_has_the_mean_of_the_seeds_and_of_the_workloads():
    names = [*LADDER, SAME_ACTIONS, HINDSIGHT]
    figures = {
        "workloads": {
            "ramp": {name: [4.0, 5.0] for name in names},
            "spike": {name: [7.5] for name in names},
        }
    }
    lines = information_report(figures).splitlines()
    assert lines[0].startswith("| shown of the future | nothing | 15 s |")
    assert lines[2].startswith("| ramp | 4.50 |")
    assert lines[-1].startswith("| mean | 6.00 |")
