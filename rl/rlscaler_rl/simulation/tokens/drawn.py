"""Drawn token services: servers, sizes and loads whose mix drifts and of which single kinds of requests surge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation import generative
from rlscaler_rl.simulation.tokens.demand import Probe, load_test, needs, only, weights_of
from rlscaler_rl.simulation.tokens.episode import Demand
from rlscaler_rl.simulation.tokens.servers import KINDS, SERVERS
from rlscaler_rl.simulation.tokens.services import Requests, Services, drawn_requests

GRID = 10
"""Seconds between the points at which a mix is drawn."""

FIRST_SECONDS = 2.5
LEAST_TOKEN_SECONDS = 0.15
ITERATIONS = 5.0
"""The objective of a token is the larger of the seconds above and so many empty iterations of the server."""

SIZES = (2.0, 40.0)
"""Replicas that a busy load needs, drawn log-uniformly; the load may reach twice of that."""

COLD_STARTS = (60.0, 300.0)
LOADS = generative.LoadModel(empty_share=0.0)
"""A service without a request needs no replica, so that nothing could be said of its cost."""

DRIFT, DRIFT_SECONDS = 0.6, 3600.0
"""Largest standard deviation of the logarithm of the rate of one kind of requests, and its correlation time."""

SURGES, SURGE, SURGE_SECONDS = 1.0, (1.5, 5.0), (300.0, 1500.0)
"""Surges of one kind an hour, by which factor, and for how long."""

WRONG = 0.25
"""Largest error of the declared capacity, in both directions."""


@dataclass(frozen=True, slots=True)
class World:
    """Services with all requests, the facts known of them, and the declared numbers."""

    servers: tuple[str, ...]
    services: Services
    requests: Requests
    truth: Demand
    declared: Demand
    seconds: int

    def repeated(self, times: int) -> World:
        """All services so many times, one after the other."""
        rows = np.tile(np.arange(len(self.services)), times)
        counts = np.diff(self.requests.first)
        first = np.concatenate([[0], np.cumsum(np.tile(counts, times))])
        return replace(
            self,
            servers=self.servers * times,
            services=self.services.take(rows),
            requests=Requests(first, *(np.tile(column, times) for column in self.requests[1:])),  # type: ignore[arg-type]
            truth=self.truth.take(rows),
            declared=self.declared.take(rows),
        )


def drawn(count: int, seconds: int, seed: int, wrong: float = WRONG) -> World:
    """Draw services, the servers in turn. `wrong`: largest error of the declared capacity."""
    rng = np.random.default_rng([seed, 21])
    names = [list(SERVERS)[i % len(SERVERS)] for i in range(count)]
    servers = [SERVERS[name] for name in names]
    token = [max(LEAST_TOKEN_SECONDS, ITERATIONS * server.iteration_ms / 1000) for server in servers]
    mixes = rng.dirichlet(np.full(len(KINDS), 1.0), count)
    size = np.exp(rng.uniform(np.log(SIZES[0]), np.log(SIZES[1]), count))
    tests = [_tested(*each) for each in zip(names, mixes, token, strict=True)]
    usual = np.array([tested[0].per_second for tested in tests])
    relative = np.clip(generative.draw(count, seconds, rng, LOADS).rate, 0.0, 2.0).astype(np.float64)
    kinds = np.stack([_kinds(mix, seconds, rng) for mix in mixes])
    rates = relative * (size * usual)[:, None] * kinds.sum(axis=2)
    low = np.exp(rng.uniform(np.log(COLD_STARTS[0]), np.log(COLD_STARTS[1]), count))
    services = Services.of(
        servers,
        seed=1000 * seed,
        first_seconds=FIRST_SECONDS,
        token_seconds=token,
        cold_start_low=low,
        cold_start_high=1.3 * low,
        initial=np.ceil(1.2 * size * relative[:, :60].mean(axis=1)).clip(1),
        max_replicas=np.ceil(2.5 * size) + 2,
    )
    weights = [weights_of(tested) for tested in tests]
    truth = Demand(
        prompt_weight=np.ones(count),
        answer_weight=np.array([weight.answer for weight in weights]),
        capacity=np.array([weight.capacity for weight in weights]),
        per_second=usual,
        tokens=np.array([[tested[0].prompt, tested[0].answer] for tested in tests]),
    )
    off = np.exp(rng.uniform(np.log(1 - wrong), np.log(1 + wrong), count))
    declared = replace(truth, capacity=truth.capacity * off, per_second=truth.per_second * off)
    shares = list(kinds / kinds.sum(axis=2, keepdims=True))
    each = [needs(mix.tolist(), tested[0], tested[1:]) for mix, tested in zip(mixes, tests, strict=True)]
    requests = drawn_requests(list(rates), shares, [1000 * seed + i for i in range(count)], each)
    return World(tuple(names), services, requests, truth, declared, seconds)


def plain(demand: Demand) -> Demand:
    """The same with all tokens alike."""
    capacity = demand.per_second * demand.tokens.sum(axis=1)
    return replace(demand, answer_weight=np.ones(len(demand)), capacity=capacity)


@lru_cache(maxsize=64)
def _alone(server: str, token: float) -> tuple[Probe, ...]:
    return tuple(load_test(SERVERS[server], only(kind), FIRST_SECONDS, token) for kind in KINDS)


def _tested(server: str, mix: Float, token: float) -> tuple[Probe, ...]:
    """Load tests of a mix, and of each kind alone."""
    usual = load_test(SERVERS[server], mix.tolist(), FIRST_SECONDS, token)
    return usual, *_alone(server, token)


def _kinds(mix: Float, seconds: int, rng: np.random.Generator) -> Float:
    """(T, KINDS) rates of the kinds over the usual rate of all."""
    points = seconds // GRID + 2
    keep = np.exp(-GRID / DRIFT_SECONDS)
    spread = rng.uniform(0.0, DRIFT)
    walk = np.zeros((points, len(mix)))
    walk[0] = rng.standard_normal(len(mix))
    for t in range(1, points):
        walk[t] = keep * walk[t - 1] + np.sqrt(1 - keep**2) * rng.standard_normal(len(mix))
    level = np.exp(spread * walk - spread**2 / 2) * mix
    for _ in range(rng.poisson(SURGES * seconds / 3600)):
        begin = rng.integers(points)
        length = max(int(np.exp(rng.uniform(*np.log(SURGE_SECONDS))) / GRID), 1)
        level[begin : begin + length, rng.choice(len(mix), p=mix)] *= rng.uniform(*SURGE)
    return np.repeat(level, GRID, axis=0)[:seconds]
