"""Capacity of a model server by load tests, and the weights of tokens that follow from them.

The load of a service is in weighted tokens: a token of a prompt weighs as much as its weight says, one of an answer as
its own. Load tests of two or more mixes give both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.servers import KINDS, Kind, Server
from rlscaler_rl.simulation.tokens.services import Requests, Services, drawn_requests

TEST_SECONDS, WARM_SECONDS = 420, 120
"""Length of a load test, and of its beginning, which does not count."""

LATE_SHARE = 0.05
"""Share of the requests of a load test that may miss the objective."""

TESTS = 14
"""Loads that are tested at once; each of two rounds narrows the range between two of them."""


class Probe(NamedTuple):
    """Result of a load test of one mix."""

    per_second: float
    """Requests that one replica answers within the objective."""

    prompt: float
    """Mean tokens of a prompt."""

    answer: float
    """Mean tokens of an answer."""


class Weights(NamedTuple):
    """Weights of tokens and the capacity of a replica in weighted tokens/s."""

    prompt: float
    answer: float
    capacity: float


def late(level: TokenLevel) -> np.ndarray:
    """(M,) which requests missed the objective: TTFT, TPOT, no answer, or none yet though it is due."""
    requests, fleet, services = level.requests, level.fleet, level.services
    row = np.repeat(np.arange(len(services)), np.diff(requests.first))
    first, token = services.first_seconds[row], services.token_seconds[row]
    waited = np.where(np.isnan(fleet.first), level.time - requests.arrived, fleet.first)
    return (waited > first) | (np.nan_to_num(fleet.token) > token) | (fleet.attempts < 0)


def load_test(
    server: Server,
    share: Sequence[float],
    first_seconds: float,
    token_seconds: float,
    kinds: Sequence[Kind] = tuple(KINDS.values()),
) -> Probe:
    """Test one warm replica under rising loads of one mix, shares of `kinds` in order.

    The objective is that of `Services`.

    :raises ScenarioError: no load at all is answered within the objective.
    """
    mix = np.tile(np.asarray(share, np.float64) / np.sum(share), (TEST_SECONDS, 1))
    low, high, requests = 0.01, 200.0, None
    names = ", ".join(kind.label for kind, part in zip(kinds, share, strict=True) if part > 0)
    for _ in range(2):
        rates = np.geomspace(low, high, TESTS)
        services = Services.of(
            [server] * TESTS,
            initial=1,
            max_replicas=1,
            retries=0,
            patience=max(600.0, 2 * first_seconds),
            first_seconds=first_seconds,
            token_seconds=token_seconds,
        )
        load = [np.full(TEST_SECONDS, rate) for rate in rates]
        requests = drawn_requests(load, [mix] * TESTS, [0] * TESTS, kinds=kinds)
        level = TokenLevel(services, requests)
        level.advance(TEST_SECONDS)
        missed, counts = late(level), requests.arrived >= WARM_SECONDS
        shares = [
            missed[a:b][counts[a:b]].mean() if counts[a:b].any() else 0.0
            for a, b in zip(requests.first[:-1], requests.first[1:], strict=True)
        ]
        over = np.flatnonzero(np.array(shares) > LATE_SHARE)
        first = int(over[0]) if over.size else TESTS - 1
        if first == 0:
            raise ScenarioError(
                f"not even {rates[0]:.2g} requests/s of {names} are answered within {first_seconds:g} s to the first "
                f"token and {token_seconds:g} s for each further one; raise these objectives, or take shorter requests"
            )
        low, high = rates[first - 1], rates[first]
    return Probe(float(low), *_means(requests, TESTS - 1))


def _means(requests: Requests | None, row: int) -> tuple[float, float]:
    assert requests is not None
    mine = slice(int(requests.first[row]), int(requests.first[row + 1]))
    return float(requests.prompt[mine].mean()), float(requests.answer[mine].mean())


def only(kind: str) -> list[float]:
    """Shares of a mix of one kind of requests."""
    if kind not in KINDS:
        raise ScenarioError(f"{kind!r} is no kind of requests; choose from {', '.join(KINDS)}")
    return [float(name == kind) for name in KINDS]


def weights_of(tests: Sequence[Probe]) -> Weights:
    """Weights by load tests of two or more mixes, the usual one first: the least squares of the errors of capacity.

    A token of a prompt weighs 1, and the capacity is that of the usual mix. Raises ScenarioError where the mixes are
    too much alike to tell the weights apart. Tests without a result are left out.
    """
    tests = [test for test in tests if np.isfinite(test.per_second)]
    tokens = np.array([[test.prompt, test.answer] for test in tests])
    if len(tests) < 2 or np.linalg.cond(tokens / tokens.mean(axis=0)) > 50:
        raise ScenarioError(
            "load tests of two mixes are needed, one with more and one with fewer tokens in its answers"
        )
    table = tokens * np.array([[test.per_second] for test in tests])
    seconds = np.linalg.lstsq(table, np.ones(len(tests)), rcond=None)[0]
    # Of a token that seems to cost nothing or less, noise is a likelier reason than a gift.
    seconds = np.maximum(seconds, 0.01 * seconds.max())
    answer = float(seconds[1] / seconds[0])
    return Weights(1.0, answer, tests[0].per_second * float(tokens[0] @ (1.0, answer)))


def needs(share: Sequence[float], usual: Probe, each: Sequence[Probe]) -> Float:
    """(KINDS,) replica-seconds that a request of each kind takes: by a load test of `each`, to the sum of the usual
    mix; NaN for a kind whose test has no result. Raises ScenarioError where the mix has such a kind."""
    alone = np.array([1.0 / test.per_second for test in each])
    mix = np.asarray(share, np.float64) / np.sum(share)
    if missing := [name for name, part, need in zip(KINDS, mix, alone, strict=True) if part > 0 and np.isnan(need)]:
        raise ScenarioError(
            f"requests of {', '.join(missing)} alone miss the objective under any load, or do not fit into the KV "
            "cache; raise the objective, or take them out of the mix"
        )
    return np.asarray(alone / (mix @ np.nan_to_num(alone)) / usual.per_second, np.float64)
