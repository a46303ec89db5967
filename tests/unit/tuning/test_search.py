"""The search itself, on functions whose minimum is known."""

from __future__ import annotations

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS
from rlscaler_rl.evaluation.tuning.search import BATCH, child, grid, search, search_each

SPACE = {"x": FloatDistribution(0.0, 1.0), "n": IntDistribution(0, 20), "kind": CategoricalDistribution(["a", "b"])}
START = {"x": 0.9, "n": 20, "kind": "b"}


def score(found):
    return np.array(
        [(one.get("x", 0.3) - 0.3) ** 2 + (one["n"] - 5) ** 2 / 400 + (one["kind"] == "b") for one in found]
    )


class Recorder:
    """Scores and remembers the batches it was asked for."""

    def __init__(self):
        self.batches = []

    def __call__(self, found):
        self.batches.append(list(found))
        return score(found)


def test_it_comes_near_the_minimum_within_its_budget():
    recorder = Recorder()
    trials = search(SPACE, [START], recorder, 240)
    assert len(trials) == sum(map(len, recorder.batches)) == 240
    assert trials[0].j < 0.01
    assert trials[0].point["kind"] == "a"
    assert [trial.j for trial in trials] == sorted(trial.j for trial in trials)


def test_what_is_known_is_played_first_and_batches_are_large():
    recorder = Recorder()
    search(SPACE, [START, {**START, "kind": "a"}], recorder, 200)
    assert recorder.batches[0] == [START, {**START, "kind": "a"}]
    assert all(len(batch) == BATCH for batch in recorder.batches[2:-1])


def test_the_same_seed_finds_the_same():
    one, two = (search(SPACE, [START], score, 120, seed=3) for _ in range(2))
    assert [trial.point for trial in one] == [trial.point for trial in two]


def test_searches_side_by_side_find_what_each_finds_alone():
    def other(found):
        return score([{**one, "n": 20 - one["n"]} for one in found])

    together = search_each(SPACE, [START], lambda batches: [score(batches[0]), other(batches[1])], 60, 2, seed=3)
    for trials, one in zip(together, (score, other), strict=True):
        assert [trial.point for trial in trials] == [trial.point for trial in search(SPACE, [START], one, 60, seed=3)]
    assert together[0][0].point != together[1][0].point


def test_a_small_space_is_played_whole():
    space = {"n": IntDistribution(0, 8, step=2), "kind": CategoricalDistribution(["a", "b"])}
    recorder = Recorder()
    trials = search(space, [], recorder, 10)
    assert len(recorder.batches) == 1
    assert len({tuple(trial.point.items()) for trial in trials}) == 10
    assert trials[0].point == {"n": 4, "kind": "a"}
    assert grid(space, 9) is None, "one trial too few"
    assert grid(SPACE, 10**9) is None, "no end of points"


def test_a_budget_smaller_than_what_is_known():
    assert len(search(SPACE, [START] * 3, score, 2)) == 2


@pytest.mark.parametrize("name", CONTENDERS)
def test_children_stay_in_the_space_and_differ_from_their_parents(name):
    tunable, rng = CONTENDERS[name], np.random.default_rng(0)
    parents = tunable.starts()
    children = [child(tunable.space, parents, rng) for _ in range(200)]
    for found in children:
        for key, value in found.items():
            inside = tunable.space[key]
            assert inside._contains(inside.to_internal_repr(value)), (key, value)
    assert sum(found not in parents for found in children) > 50
