"""Simulated model servers: no request and no token is lost, and no answer is sooner than its iterations take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlscaler_rl.simulation.ledger import LedgerError
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens import ledger
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.servers import SERVERS, Server
from rlscaler_rl.simulation.tokens.services import LEAST_LOADED, ROUND_ROBIN, Requests, Services, drawn_requests

SMALL = Server("small", 20.0, 0.1, 0.1, 2e-4, 50_000, 512, 8, "invented for tests")
"""Few sequences and a small cache: both are soon full."""


def requests_of(*rows: list[tuple[float, int, int]]) -> Requests:
    """Requests (arrival, prompt, answer) of each service, none of them cached."""
    first = np.cumsum([0, *map(len, rows)])
    flat = [request for row in rows for request in row]
    arrived, prompt, answer = (np.array([request[i] for request in flat]) for i in range(3))
    none = np.zeros(len(flat))
    ints = (prompt.astype(np.int32), answer.astype(np.int32))
    return Requests(first, arrived.astype(np.float64), *ints, none, np.full(len(flat), np.nan))


def alone(requests: list[tuple[float, int, int]], seconds: float = 60.0, server: Server = SMALL) -> TokenLevel:
    """One replica with these requests."""
    level = TokenLevel(Services.of([server], initial=1, patience=600.0), requests_of(requests))
    tick(level, seconds)
    return level


def tick(level: TokenLevel, seconds: float) -> None:
    """Let time pass, five seconds at once."""
    for _ in range(round(seconds / 5)):
        level.advance(5.0)
    ledger.check(level)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5)), max_size=6),
    st.sampled_from([SMALL, *SERVERS.values()]),
    st.floats(0.2, 25.0),
    st.sampled_from([LEAST_LOADED, ROUND_ROBIN]),
    st.sampled_from([5.0, 60.0]),
    st.integers(0, 99),
)
def test_whatever_is_scaled_requests_and_tokens_are_done_lost_or_left(
    changes: list[tuple[int, int]], server: Server, rate: float, routing: int, patience: float, seed: int
) -> None:
    services = Services.of(
        [server] * 2, seed=seed, routing=routing, patience=patience, retries=2, max_replicas=5, initial=1,
        cold_start_low=2.0, cold_start_high=9.0, drain_seconds=7.0,
    )  # fmt: skip
    mix = np.tile([0.4, 0.2, 0.1, 0.1, 0.2], (120, 1))
    level = TokenLevel(services, drawn_requests([np.full(120, rate)] * 2, [mix] * 2, [seed, seed + 1]))
    for ticks, replicas in [*changes, (30, 5)]:
        level.scale(np.full(2, replicas))
        for _ in range(ticks):
            level.advance(5.0)
            ledger.check(level)


def test_an_answer_takes_its_iterations() -> None:
    level = alone([(0.0, 512, 3), (1.0, 513, 1)])
    # One iteration for the prompt, with the first token; then two of one sequence and 513 or 514 held tokens.
    first = 0.020 + 0.0001 + 512 * 1e-4 + 512 * 2e-7
    assert level.fleet.first[0] == pytest.approx(first)
    assert level.fleet.token[0] == pytest.approx(0.0201 + 513.5 * 2e-7)
    # The second prompt is a token longer than an iteration takes.
    assert level.fleet.first[1] == pytest.approx(2 * 0.0201 + 513 * 1e-4 + 2 * 513 * 2e-7)


def test_answers_of_a_full_batch_wait_their_turn() -> None:
    level = alone([(0.0, 10, 100)] * 9)
    first = np.sort(level.fleet.first)
    assert first[7] < 0.1
    assert first[8] > 100 * 0.02


def test_a_full_cache_preempts_and_computes_again_and_still_answers_all() -> None:
    level = alone([(0.0, 14_000, 3000)] * 4, 600.0)
    service = level.fleet.service[0]
    assert service["preempted"] > 0
    assert service["computed"] > 4 * 14_000
    assert service["done"] == 4


def test_a_newcomer_takes_a_cold_start_and_computes_whole_prompts() -> None:
    prompts = [(float(second), 1000, 2) for second in range(60)]
    requests = requests_of(prompts)._replace(cached=np.full(60, 0.5))
    services = Services.of([SMALL], initial=1, max_replicas=2, cold_start_low=20.0, cold_start_high=20.0, warm=1e5)
    level = TokenLevel(services, requests)
    level.advance(5.0)
    level.scale(np.array([2]))
    level.advance(100.0)
    service = level.fleet.service[0]
    assert ledger.started(level)[0] == pytest.approx(20.0)
    # About half of the last 35 requests meet the newcomer, whose cache is empty.
    assert 60 * 500 + 10 * 500 < service["computed"] < 60 * 500 + 25 * 500


def test_clients_without_a_first_token_give_up_and_try_again_as_often_as_they_may() -> None:
    level = TokenLevel(
        Services.of([SMALL], initial=1, patience=3.0, retries=1), requests_of([(0.0, 10, 2000)] * 8 + [(0.5, 10, 5)])
    )
    tick(level, 20.0)
    service = level.fleet.service[0]
    assert (service["lost"], service["attempts"]) == (1, 10)


def test_a_replica_that_is_removed_ends_its_answers_within_the_time_to_drain() -> None:
    for drain, lost in ((200.0, 0), (5.0, 2)):
        services = Services.of([SMALL], initial=2, drain_seconds=drain, retries=0, patience=600.0)
        level = TokenLevel(services, requests_of([(0.0, 10, 1000)] * 4))
        tick(level, 5.0)
        level.scale(np.array([1]))
        tick(level, 310.0)
        service = level.fleet.service[0]
        assert (service["lost"], service["done"]) == (lost, 4 - lost)
        assert (ledger.billed(level)[0] > 315.0 + 12.0) == (lost == 0)


def test_a_ledger_that_lost_tokens_is_refused_and_so_is_a_request_without_an_answer() -> None:
    level = alone([(0.0, 10, 5)])
    level.fleet.service["answer_done"] -= 1
    with pytest.raises(LedgerError, match="answer tokens in"):
        ledger.check(level)
    with pytest.raises(ScenarioError, match="at least one token each"):
        TokenLevel(Services.of([SMALL]), requests_of([(0.0, 10, 0)]))
    with pytest.raises(ScenarioError, match="service 0: a request of 30,001 tokens needs half of the KV cache"):
        TokenLevel(Services.of([SMALL]), requests_of([(0.0, 30_000, 1)]))
    with pytest.raises(ScenarioError, match="patience = 1"):
        Services.of([SMALL], patience=1.0)
