"""What is played: the same conditions for everybody, episode by episode, and a meter that is audited."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.invariants import STATEMENTS, Audit, deviations
from rlscaler_rl.evaluation.play import Task, play, play_one
from rlscaler_rl.evaluation.settings import APART
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.workloads import Part, episodes

pytestmark = pytest.mark.slow


def spikes(small):
    return episodes("spike", Part.TEST, runs=2, episodes=2, duration_seconds=small.duration_seconds)


def test_everybody_is_played_everywhere(played, small):
    names = {entry.name for entry in played.entries}
    assert set(played.board.scores) == {(w, n) for w in ("spike", "azure_code", *APART) for n in names}
    assert played.board.averaged == ["spike", "azure_code"]
    assert played.audit.checked == 4 * len(played.board.scores)
    assert {item.name: item.kind for item in played.workloads}["azure_code"] == "trace"


def test_a_second_training_seed_is_a_row_of_its_own(played):
    assert played.board.models == ["policy", "seed_2"]
    for workload in played.board.workloads:
        np.testing.assert_array_equal(
            played.board.scores[workload, "policy"]["j"], played.board.scores[workload, "seed_2"]["j"]
        )


def test_folds_are_joined_run_by_run(played, small):
    assert played.board.designs["azure_code"].blocks is not None
    assert played.board.designs["azure_code"].units == 4
    assert played.board.scores["azure_code", "hpa"]["j"].shape == (4,)


def test_the_first_episode_of_the_first_run_is_recorded(played):
    record = played.timelines["spike", "hpa"]
    assert record["j"] == played.board.scores["spike", "hpa"]["j"][0]
    assert len(record["arrivals"]) == 120


def test_other_processes_find_the_same(played, small, nowhere):
    loaded = models.load_all(("rule",), nowhere)
    again = play(small.model_copy(update={"extras": False}), "evaluation", loaded, lambda *_: None, workers=2)
    for entry in again.entries:
        np.testing.assert_array_equal(
            again.board.scores["spike", entry.name]["j"], played.board.scores["spike", entry.name]["j"]
        )


def test_the_levels_differ_and_the_request_level_is_the_default(small, nowhere):
    assert small.level == "request"
    rule = models.load("rule", nowhere)
    task = Task(small, ((rule.source, rule.digest),), "evaluation", "spike", "hpa", False)
    fluid = replace(task, settings=small.model_copy(update={"level": "fluid"}))
    assert not np.array_equal(play_one(task).scores["late_percent"], play_one(fluid).scores["late_percent"])


def test_the_meter_holds_for_every_contender(played):
    assert all(item.holds for item in played.audit.invariants()), played.audit.reasons()


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
    scenarios = spikes(small)
    ledger = run(scenarios, Hpa()).ledger
    assert max(float(np.max(values)) for values in deviations(ledger, scenarios).values()) < 1e-6
    audit = Audit()
    audit.add("spike/hpa", replace(ledger, **{field: getattr(ledger, field) + change}), scenarios)
    assert broken in {item.name for item in audit.invariants() if not item.holds}
    assert any(STATEMENTS[broken] in reason and "spike/hpa" in reason for reason in audit.reasons())


def test_a_cost_below_physics_is_found(small):
    scenarios = spikes(small)
    ledger = run(scenarios, Hpa()).ledger
    audit = Audit()
    audit.add("x", replace(ledger, billed=ledger.billed * 0.1, ready_seconds=ledger.ready_seconds * 0.1), scenarios)
    assert "floor" in {item.name for item in audit.invariants() if not item.holds}


def test_nothing_checked_is_not_a_pass():
    assert not any(item.holds for item in Audit().invariants())


def test_audits_are_merged_with_the_worst_of_both(small):
    scenarios = spikes(small)
    ledger = run(scenarios, Hpa()).ledger
    good, bad = Audit(), Audit()
    good.add("good", ledger, scenarios)
    bad.add("bad", replace(ledger, dropped=ledger.dropped + 9), scenarios)
    good.merge(bad)
    assert good.checked == 2 * len(scenarios)
    assert good.worst["requests"][1] == "bad"
