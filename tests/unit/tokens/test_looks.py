"""The numbers that autoscalers read of token services, and the weights of tokens."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.tables import initial_state, make_params
from rlscaler_rl.evaluation.tokens.contenders import BacklogSettings, KedaBacklog
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.demand import Probe, load_test, only, weights_of
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.looks import Looks, percentile
from rlscaler_rl.simulation.tokens.servers import SERVERS
from rlscaler_rl.simulation.tokens.services import Services, drawn_requests
from rlscaler_rl.simulation.tokens.state import FIRST_BUCKETS, TOKEN_BUCKETS


def seen(rate: float, seconds: int = 120) -> tuple[TokenLevel, Looks]:
    """A replica under a load of short questions, and looks of all its life."""
    mix = np.tile(only("short"), (seconds, 1))
    services = Services.of([SERVERS["8b-l40s"]], initial=1, patience=600.0)
    level = TokenLevel(services, drawn_requests([np.full(seconds, rate)], [mix], [1]))
    looks = Looks(level, np.array([[1.0, 3.0]]))
    for _ in range(seconds // 5):
        level.advance(5.0)
        looks.look()
    return level, looks


@pytest.mark.parametrize("rate", [5.0, 60.0])
def test_the_load_in_weighted_tokens_is_what_arrives_also_where_replicas_are_full(rate: float) -> None:
    level, looks = seen(rate)
    requests = level.requests
    new = (requests.arrived >= level.time - 30) & (requests.arrived < level.time)
    arrived = (requests.prompt[new] + 3.0 * requests.answer[new]).sum() / 30
    assert looks.value("tokens")[0] == pytest.approx(arrived, rel=0.15)
    assert looks.value("requests")[0] == pytest.approx(new.sum() / 30)
    assert (looks.value("waiting")[0] > 100) == (rate > 50)
    assert looks.usage()[0] == 100 if rate > 50 else looks.usage()[0] < 10


def test_the_backlog_is_the_seconds_of_prompts_without_a_first_token_and_the_cache_may_ask_for_more() -> None:
    level, looks = seen(60.0)
    waiting = (level.requests.arrived < level.time) & np.isnan(level.fleet.first)
    seconds = level.requests.prompt[waiting].sum() * level.services.prompt[0]
    assert looks.value("backlog")[0] == pytest.approx(seconds)
    samples, now = looks.samples("backlog"), np.array([[1, 0]], np.int32)
    assert samples.cpu_utilization[0] / 100 == looks.value("kv")[0] > 0
    state = initial_state(1, 1)

    def asked(target: float, kv: float) -> int:
        keda = KedaBacklog(BacklogSettings(target=(target,) * 2, min_replicas=(0, 0), scaled=(True, True), kv=kv))
        keda.reset(make_params(1))
        return int(keda.recommend(samples, state, now)[0, 0])

    assert asked(1.0, 1e9) == np.ceil(seconds)
    assert asked(1e9, 0.001) == np.ceil(looks.value("kv")[0] / 0.001)
    assert asked(1.0, 0.001) == max(asked(1.0, 1e9), asked(1e9, 0.001))


def test_no_look_yet_is_no_load_of_zero() -> None:
    _, looks = seen(1.0, 0)
    assert np.isnan(looks.value("tokens")[0])
    assert np.isnan(looks.near()[0])


@pytest.mark.parametrize(
    ("answered", "objective", "worse"),
    [(0, 0.15, np.nan), (0, 0.01, 2.425), (9, 0.15, 0.02425 / 0.15), (9, np.inf, 0.0078)],
)
def test_the_worse_latency_is_in_share_of_its_objective(answered: int, objective: float, worse: float) -> None:
    services = Services.of([SERVERS["8b-l40s"]], token_seconds=objective)
    level = TokenLevel(services, drawn_requests([np.zeros(60)], [np.tile(only("short"), (60, 1))], [1]))
    looks = Looks(level, np.array([[1.0, 3.0]]))
    level.advance(5.0)
    level.fleet.first_seen[0, 0, np.searchsorted(FIRST_BUCKETS, 0.02)] = answered
    level.fleet.token_seen[0, 0, np.searchsorted(TOKEN_BUCKETS, 0.02)] = 9
    looks.look()
    np.testing.assert_allclose(looks.near(), [worse])


def test_a_percentile_lies_within_its_bucket_and_beyond_the_last_at_its_bound() -> None:
    bounds = np.array([1.0, 2.0, 4.0])
    counts = np.array([[50.0, 50.0, 0.0, 0.0], [0.0, 0.0, 0.0, 9.0], [0.0] * 4])
    np.testing.assert_allclose(percentile(counts, bounds), [1.9, 4.0, np.nan])


def test_weights_follow_from_load_tests_of_two_mixes() -> None:
    weights = weights_of([Probe(2.0, 1000, 100), Probe(1.0, 1000, 600)])
    # 1,000 p + 100 a = 1/2 replica-second, 1,000 p + 600 a = 1.
    assert weights.answer == pytest.approx(2.5)
    assert weights.capacity == pytest.approx(2 * 1250)
    with pytest.raises(ScenarioError, match="two mixes"):
        weights_of([Probe(2.0, 1000, 100), Probe(1.0, 2000, 200)])


def test_a_load_test_finds_less_capacity_for_longer_prompts_and_refuses_an_objective_out_of_reach() -> None:
    server = SERVERS["8b-a100"]
    short, rag = (load_test(server, only(kind), first_seconds=2.5, token_seconds=0.15) for kind in ("short", "rag"))
    assert 5 < short.per_second / rag.per_second < 40
    with pytest.raises(ScenarioError, match="not even"):
        load_test(server, only("rag"), first_seconds=0.05, token_seconds=0.15)
