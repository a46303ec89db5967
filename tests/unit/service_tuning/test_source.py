"""Episodes of one service: its constants as well as they are known, its load at its own scale."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_loadgen.traces import Trace
from rlscaler_rl.baselines.simple import Unscaled
from rlscaler_rl.evaluation.service_tuning.episodes import (
    ERROR,
    Mix,
    ServiceSource,
    lag_seconds,
    part_episodes,
    score_of,
)
from rlscaler_rl.evaluation.service_tuning.history import prepare
from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.workloads import Part

from .conftest import make_service, waves


def source(service, history, mix=None, seed=1):
    return ServiceSource(service, history, np.random.default_rng(seed), mix or Mix())


def test_constants_are_off_by_no_more_than_the_envelope_allows(service, history):
    made = source(service, history).draw(64)
    outside = service.envelope(ERROR, lag_seconds(service)).mask(made.params(), made.delay + made.scrape)
    assert not outside.any()
    assert (made.rps / made.believed_rps).min() < 0.8, "the declared capacity is a first guess"
    assert (made.rps / made.believed_rps).max() > 1.1
    assert 0 < np.mean(made.drift > 0) < 1
    assert (made.start_seconds > 0).all()
    assert (made.believed_rps == service.rps).all(), "the policy believes what its spec says"
    assert (made.max_replicas == service.params.max_replicas).all()


def test_the_recorded_load_keeps_its_scale(service, history):
    made = source(service, history, Mix(pattern_share=0, steady_share=0, scale=(1.0, 1.0))).draw(64)
    assert set(made.pattern) == {"trace"}
    assert made.rate.max() <= history.recording.pieces[Part.TRAIN][0].max() * 1.001
    assert made.rate.min() >= 19.9


def test_other_loads_stay_near_the_historys_levels(service, history):
    made = source(service, history, Mix(pattern_share=0.5, steady_share=0.5)).draw(64)
    assert {"steady", "ramp", "spike"} < set(made.pattern)
    assert made.rate.max() <= 1.25 * 90


def test_nobody_is_given_the_same_episode_twice_and_a_seed_repeats(service, history):
    one, other = source(service, history), source(service, history)
    first = [one.take(n) for n in (100, 300)]
    again = other.take(400)
    assert np.array_equal(np.concatenate([part.key for part in first]), again.key)
    assert len(np.unique(again.key)) == 400


@pytest.mark.parametrize("pools", [(True, True), (True, False), (False, True)])
def test_the_reward_of_an_episode_is_minus_its_score(pools):
    """Up to the price on changes, which is none where nothing changes."""
    service = make_service(present=pools)
    history = prepare(Trace(waves(high=60) / (1 if pools[0] else 4), 1.0), "waves.csv", service)
    score = score_of(service, history.recording.reference)
    scenarios, _ = part_episodes(service, history, Part.TUNE, 4, 0)
    batch = Batch(scenarios)
    norms, reward = objectives.norms(batch.scenarios), np.zeros(len(scenarios))
    for _ in range(service.episode_seconds // batch.interval):
        before = objectives.read(batch.cluster)
        for _ in range(batch.interval // 5):
            batch.sense()
            batch.advance()
        reward += score.reward(objectives.read(batch.cluster).since(before), norms, np.zeros(len(scenarios)))
    result = run(scenarios, Unscaled()).result
    in_time = result.late_percent - 100 * result.queued / result.requests
    expected = score.size * result.cost + score.late_weight * in_time
    intervals = service.episode_seconds // batch.interval
    assert -reward / objectives.REWARD_SCALE / intervals == pytest.approx(expected, rel=0.006)


def test_a_service_twice_the_size_scores_alike():
    """Half as many percent late weigh as much in both: J goes by what carries the peak, not by replicas."""
    small = score_of(make_service(), 100.0)
    large = score_of(make_service(max_replicas=20), 200.0)
    assert large.size == pytest.approx(small.size / 2, rel=0.1)
    assert large.late_weight == small.late_weight == 0.5


def test_a_history_is_played_block_by_block(service, history):
    rows, runs = part_episodes(service, history, Part.TEST, 16, 0)
    assert (len(rows), runs) == (16, 4)
    assert len({row.tobytes() for row in rows.rate}) == 4
    assert len({row.tobytes() for row in rows.arrivals}) == 16
    assert rows.rate.max() <= 90.001
