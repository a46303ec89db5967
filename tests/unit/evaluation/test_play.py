"""What is played: the same conditions for everybody, episode by episode, and a meter that is audited."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.baselines.lineup import lineup
from rlscaler_rl.decision import bundled
from rlscaler_rl.evaluation.invariants import STATEMENTS, Audit, deviations
from rlscaler_rl.evaluation.play import digest, play, scenarios_of
from rlscaler_rl.simulation.episode import run

NOBODY = lambda workload, label: None  # noqa: E731


def test_scenarios_are_a_function_of_the_settings(small):
    one, same = scenarios_of("random", small), scenarios_of("random", small)
    assert digest(one) == digest(same)
    other = scenarios_of("random", small.model_copy(update={"seed": 7}))
    assert digest(one) != digest(other)


def test_every_episode_has_a_load_of_its_own(small):
    made = scenarios_of("random", small)
    assert len(made) == small.runs * small.episodes
    assert len(np.unique(made.arrivals, axis=0)) == len(made)


def test_a_run_added_leaves_the_others_as_they_were(small):
    few, more = scenarios_of("spike", small), scenarios_of("spike", small.model_copy(update={"runs": 3}))
    np.testing.assert_array_equal(few.arrivals, more.arrivals[: len(few)])


def test_episodes_begin_with_replicas_that_carry_the_first_second(small):
    made = scenarios_of("random", small)
    assert ((made.initial * made.rps).sum(axis=1) >= made.rate[:, 0]).all()


def test_one_pool_episodes_alternate_and_carry_what_their_pool_can(small):
    made = scenarios_of("one_pool", small)
    assert made.present.tolist() == [[True, False], [False, True]] * (len(made) // 2)
    capacity = (made.max_replicas * made.rps * made.present).sum(axis=1)
    assert (made.rate.max(axis=1) < capacity).all()


def test_varied_episodes_differ_in_scale(small):
    made = scenarios_of("varied", small.model_copy(update={"episodes": 20}))
    peaks = made.rate.max(axis=1)
    assert peaks.min() < 50
    assert peaks.max() > 110


def test_flat_episodes_do_not_change_and_some_are_idle(small):
    made = scenarios_of("flat", small.model_copy(update={"episodes": 20}))
    assert (np.ptp(made.rate, axis=1) == 0).all()
    assert (made.rate.max(axis=1) == 0).mean() == pytest.approx(0.2)
    assert 50 < made.rate.max() <= 100


def test_everybody_is_played_everywhere(played):
    names = {entry.name for entry in played.entries}
    assert set(played.board.scores) == {
        (w, n) for w in ("spike", "random", "varied", "flat", "one_pool") for n in names
    }
    assert played.board.averaged == ["spike", "random"]
    assert played.audit.checked == len(names) * 4 * 5


def test_the_meter_holds_for_every_contender(played):
    assert all(item.holds for item in played.audit.invariants()), played.audit.reasons()


def test_playing_twice_gives_the_same_scores(small, played):
    entries = [entry for entry in lineup(bundled.load("rule"), "rule") if entry.name in ("policy", "random", "hpa")]
    again = play(small, entries, NOBODY, timelines=())
    for entry in entries:
        np.testing.assert_array_equal(
            again.board.metric("random", entry.name, "j"), played.board.metric("random", entry.name, "j")
        )


@pytest.mark.parametrize(
    ("field", "change", "broken"),
    [
        ("billed", -5.0, "billing"),
        ("pending_seconds", 5.0, "billing"),
        ("ready", 1.0, "replicas"),
        ("dropped", 3.0, "requests"),
        ("late", -1e6, "signs"),
    ],
)
def test_a_meter_that_cheats_is_found(small, field, change, broken):
    scenarios = scenarios_of("spike", small)
    ledger = run(scenarios, Hpa()).ledger
    assert max(float(np.max(values)) for values in deviations(ledger, scenarios).values()) < 1e-6
    audit = Audit()
    audit.add("spike/hpa", replace(ledger, **{field: getattr(ledger, field) + change}), scenarios)
    assert broken in {item.name for item in audit.invariants() if not item.holds}
    assert any(STATEMENTS[broken] in reason and "spike/hpa" in reason for reason in audit.reasons())


def test_a_cost_below_physics_is_found(small):
    scenarios = scenarios_of("spike", small)
    ledger = run(scenarios, Hpa()).ledger
    audit = Audit()
    audit.add("x", replace(ledger, billed=ledger.billed * 0.1, ready_seconds=ledger.ready_seconds * 0.1), scenarios)
    assert "floor" in {item.name for item in audit.invariants() if not item.holds}


def test_nothing_checked_is_not_a_pass():
    assert not any(item.holds for item in Audit().invariants())


def test_hindsight_beats_hpa_on_a_spike(played):
    assert played.board.metric("spike", "hindsight", "j").mean() < played.board.metric("spike", "hpa", "j").mean()
