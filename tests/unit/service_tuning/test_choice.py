"""Which network and which spec the tune part chooses, and what is said of it after the held-back part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import yaml

from rlscaler_core.decision.action import one_hot
from rlscaler_core.decision.types import Placement
from rlscaler_core.models import load_bundled
from rlscaler_loadgen.traces import Trace
from rlscaler_rl.baselines.actors import FrozenActor
from rlscaler_rl.evaluation.board import Board
from rlscaler_rl.evaluation.lineup import Entry
from rlscaler_rl.evaluation.schema import Difference
from rlscaler_rl.evaluation.service_tuning import spec, verdict
from rlscaler_rl.evaluation.service_tuning.episodes import part_episodes, score_of
from rlscaler_rl.evaluation.service_tuning.history import prepare
from rlscaler_rl.evaluation.service_tuning.networks import FOUND_SPEC, GENERAL, OWN_SPEC, Alternative, Bench, Choice
from rlscaler_rl.evaluation.service_tuning.rivals import TUNED, rivals, tune
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS
from rlscaler_rl.evaluation.tuning.score import scores
from rlscaler_rl.evaluation.tuning.tune import Best
from rlscaler_rl.training.chooser import Candidate
from rlscaler_rl.training.finetune import FineTuned
from rlscaler_rl.workloads import Part

from .conftest import make_service

STILL = FrozenActor(load_bundled("ppo").manifest.model_copy(update={"residual": False}))
"""Holds the replicas that are there; the floor alone raises them."""

RAISED = {"min_gpu": 5}


class Dropping:
    """Asks for fewer replicas at all times; the floor alone raises them again."""

    manifest = STILL.manifest

    def probabilities(self, stacked):
        return one_hot(np.tile(np.array([[-2, -2, Placement.BALANCED]], np.int32), (len(stacked), 1)))


def bursts() -> np.ndarray:
    """Requests/s that jump from next to nothing to what needs five GPU replicas, faster than any cold start."""
    seconds = np.arange(24_000)
    return np.where(seconds % 400 < 150, 85.0 + seconds // 400 % 13, 8.0)


def make_bench(service=None, **options) -> Bench:
    service = service or make_service()
    history = prepare(Trace(bursts(), 1.0), "bursts.csv", service)
    screening, _ = part_episodes(service, history, Part.TUNE, 6, 1)
    judged, runs = part_episodes(service, history, Part.TUNE, 12, 2)
    columns = {"level": "fluid", "budget": 14, "finalists": 3, "seed": 1} | options
    score = score_of(service, history.recording.reference)
    return Bench(service, spec.tunable(service, history), screening, judged, runs, score, **columns)


def network(name, actor, steps=1000) -> Alternative:
    return Alternative(name, actor, FineTuned(best=Candidate(steps, None, 1.0, 1.0)))


@pytest.fixture(scope="module")
def bench() -> Bench:
    return make_bench()


@pytest.mark.slow
def test_a_search_finds_nothing_worse_than_the_users_own_spec(bench):
    found = bench.search(STILL)
    own = bench.kind.default
    assert found[0] != own
    kind = spec.around(bench.kind, STILL)
    best, mine = scores(kind, [found[0], own], bench.screening, "fluid", bench.score.j).mean(axis=1)
    assert best < mine
    assert len(found) == 3


@pytest.mark.slow
def test_what_the_budget_rules_out_is_never_found():
    tight = make_bench(make_service(budget_per_hour=6.0))
    found = tight.search(STILL)
    assert found
    assert all(spec.affordable(tight.service, one) for one in found)


def point(bench, **changes):
    return {**bench.kind.default, **changes}


def of_all(found):
    return {name: [found] for name in (GENERAL, OWN_SPEC, FOUND_SPEC)}


@pytest.mark.slow
def test_a_spec_that_helps_is_recommended_without_what_does_nothing():
    bare = make_bench(make_service(reactive_floor=False))
    general, both = Alternative(GENERAL, STILL), [network(OWN_SPEC, STILL), network(FOUND_SPEC, STILL)]
    choice = bare.choose([general, *both], of_all(point(bare, reactive_floor=True, down_window=60)))
    assert choice.found == {"reactive_floor": True}, "who never lowers replicas needs no window"
    assert choice.gain.verdict == "win"
    own, best = choice.j[choice.network.name]
    assert best < own


@pytest.mark.slow
def test_a_spec_that_does_not_help_is_not_recommended(bench):
    everything = point(bench, min_gpu=10, min_cpu=10)
    own = bench.kind.default
    general, both = Alternative(GENERAL, STILL), [network(OWN_SPEC, STILL), network(FOUND_SPEC, STILL)]
    for one in (everything, own):
        choice = bench.choose([general, *both], of_all(one))
        assert choice.found == spec.OWN
    assert choice.gain is None


@pytest.mark.slow
def test_a_network_that_is_worse_under_the_users_spec_is_passed_over(bench):
    listed = of_all(bench.kind.default)
    good, bad = network(OWN_SPEC, STILL), network(FOUND_SPEC, Dropping())
    choice = bench.choose([Alternative(GENERAL, STILL), bad, good], listed)
    assert choice.network is good
    unlearned = network(OWN_SPEC, STILL, steps=0)
    assert bench.choose([Alternative(GENERAL, STILL), bad, unlearned], listed).network is unlearned


def board_of(j: dict[str, float]) -> Board:
    service = make_service()
    listed = rivals(service, STILL, STILL, _searched(), 90.0, RAISED)
    board, noise = Board(listed), np.random.default_rng(0).normal(0, 0.05, (2, 8))
    for at, one in enumerate(listed):
        spread = noise * (1 + 0.1 * at)
        board.add("chat", one.name, {"j": j.get(one.name, 5.0) + spread}, tuple(range(8)) * 2)
    return board


def _searched():
    return {name: Best(CONTENDERS[name].default, 1.0, 1.0, 1) for name in TUNED}


def test_rivals_act_as_often_as_the_service(bench):
    rows = replace(bench.screening, interval_seconds=np.full(len(bench.screening), 20.0))
    found = tune("rule", (rows, rows), bench.score, "fluid", budget=3, finalists=1, seed=0)
    assert found.point["interval"] == 20
    assert set(found.point) == set(CONTENDERS["rule"].space)
    assert "interval" not in tune("hpa", (rows, rows), bench.score, "fluid", budget=2, finalists=1, seed=0).point


GAIN = {"mean": -0.5, "low": -0.6, "high": -0.4, "percent": -10.0, "low_percent": -12.0, "high_percent": -8.0}


@pytest.mark.parametrize(
    ("publish", "j", "apply", "said"),
    [
        (True, {"policy_spec": 4.5}, True, "with the policy for this service, better than your spec"),
        (True, {"policy_spec": 5.5, "general_spec": 4.0}, False, "worse than your spec"),
        (False, {"policy_spec": 5.5, "general_spec": 4.0}, True, "with the general policy, which stays, better"),
        (True, {}, False, "not shown to be better"),
    ],
)
def test_the_held_back_part_says_whether_to_apply_it(history, publish, j, apply, said):
    service = make_service()
    choice = Choice(network(OWN_SPEC, STILL), RAISED, Difference(**GAIN, verdict="win"), {})
    made = verdict.recommendation(board_of(j), "chat", choice, service, history, publish=publish)
    assert made.apply == apply
    assert said in made.reason
    assert set(made.worth) == {"policy", "general", "hpa_tuned", "rule_tuned"}
    text = verdict.patch_file(made, service)
    assert yaml.safe_load(text) == {"spec": {"targets": {"gpu": {"minReplicas": 5}}}}
    assert "kubectl patch rlsp chat -n demo --type merge --patch-file spec-patch.yaml" in text


def test_a_file_of_an_earlier_run_goes_where_nothing_is_recommended(history, tmp_path):
    service = make_service()
    made = verdict.recommendation(
        board_of({}), "chat", Choice(network(OWN_SPEC, STILL), {}, None, {}), service, history, publish=True
    )
    (tmp_path / verdict.PATCH_FILE).write_text("spec: {}\n")
    verdict.write_patch(made, service, tmp_path)
    assert not (tmp_path / verdict.PATCH_FILE).exists()
    assert made.reason.startswith("nothing to change")


def test_networks_under_the_recommended_spec_are_rows_of_their_own():
    listed: list[Entry] = rivals(make_service(), STILL, STILL, _searched(), 90.0, RAISED)
    assert [one.name for one in listed][:3] == ["policy", "policy_spec", "hpa_tuned"]
    at = [one.name for one in listed].index("general")
    assert listed[at + 1].name == "general_spec"
    assert {one.role for one in listed if one.name.endswith("_spec")} == {"spec"}
