"""WVA's demand in replicas, and its recommendation from it, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_rl.evaluation.tokens.contenders import ENTRIES
from rlscaler_rl.simulation.tokens.saturation import KV_SHARE, REMEMBERED, Saturation
from rlscaler_rl.simulation.tokens.servers import Server
from rlscaler_rl.simulation.tokens.services import Services
from rlscaler_rl.simulation.tokens.state import POD, READY, STARTING

CACHE = 10_000
PROMPT, ANSWER = np.array([300.0]), np.array([100.0])


def saturation(batched_tokens: int = 100_000, sequences: int = 20) -> Saturation:
    return Saturation(Services.of([Server("s", 10.0, 1.0, 0.1, 0.0, CACHE, batched_tokens, sequences, "test")]))


def pods(*rows: tuple[int, int, int]) -> np.ndarray:
    """Return the replicas (1, S) of phase, held tokens and waiting requests."""
    pod = np.zeros((1, len(rows)), POD)
    for slot, row in enumerate(rows):
        pod[0, slot]["phase"], pod[0, slot]["held"], pod[0, slot]["waiting"] = row
    return pod


def test_demand_is_held_tokens_and_waiting_prompts_over_the_capacity_by_the_batch() -> None:
    # 20 sequences of 300 + 100 / 2 tokens are less than the share of the cache.
    demand = saturation().demand(pods((READY, 3000, 0), (READY, 1000, 4), (STARTING, 0, 0)), PROMPT, ANSWER)
    assert demand == pytest.approx([(4000 + 4 * 300) / (20 * 350)])
    few = saturation(batched_tokens=40).demand(pods((READY, 3000, 0)), PROMPT, ANSWER)
    assert few == pytest.approx([3000 / (40 * 100 / 400 * 350)])


def test_the_cache_bounds_the_capacity_and_is_it_where_lengths_are_not_known() -> None:
    assert saturation(sequences=200).demand(pods((READY, 4000, 0)), PROMPT, ANSWER) == pytest.approx(
        [4000 / (KV_SHARE * CACHE)]
    )
    unknown = np.array([np.nan])
    assert saturation().demand(pods((READY, 4000, 2)), unknown, unknown) == pytest.approx([4000 / (KV_SHARE * CACHE)])
    assert np.isnan(saturation().demand(pods((STARTING, 0, 0)), PROMPT, ANSWER)).all()


def test_the_capacity_of_full_replicas_is_remembered_for_answers_of_that_length() -> None:
    known = saturation()
    assert known.demand(pods((READY, 2000, 5)), PROMPT, ANSWER) == pytest.approx([(2000 + 5 * 300) / 2000])
    assert known.demand(pods((READY, 1000, 0)), PROMPT, ANSWER) == pytest.approx([1000 / 2000])
    assert known.demand(pods((READY, 1000, 0)), PROMPT, 9 * ANSWER) == pytest.approx([1000 / (KV_SHARE * CACHE)])
    for _ in range(REMEMBERED):
        known.demand(pods((READY, 500, 9)), PROMPT, ANSWER)
    assert known.demand(pods((READY, 1000, 0)), PROMPT, ANSWER) == pytest.approx([1000 / 500])


@pytest.mark.parametrize(
    ("demand", "ready", "wanted"),
    [
        (4.3, 4, 6),  # 4.3 / .85 = 5.06
        (4.3, 2, 6),  # replicas that start count as capacity
        (3.0, 4, 4),  # between both thresholds
        (1.3, 4, 2),  # 4 - 1.3 / .7 = 2.14 replicas to spare
        (0.0, 4, 1),
        (np.nan, 4, 4),
    ],
)
def test_wva_adds_above_one_threshold_and_removes_below_the_other(demand: float, ready: int, wanted: int) -> None:
    entry = next(entry for entry in ENTRIES if entry.tunable.name == "wva")
    controller = entry.tunable.controllers([entry.tunable.default], np.zeros((1, 1)), 1)
    params = make_params(1, present=(True, False), min_replicas=(1, 0), max_replicas=(40, 0))
    controller.reset(params)
    samples = make_samples(1, time=0.0, arrival_rate=demand, spec_replicas=(4, 0), ready_replicas=(ready, 0))
    recommended = controller.recommend(samples, initial_state(1, 1), np.array([[4, 0]], np.int32))
    assert recommended[0, 0] == wanted
