"""Drawn token services: servers, sizes and loads whose mix drifts and of which single kinds of requests surge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation import generative
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.demand import Probe, load_test, needs, only, weights_of
from rlscaler_rl.simulation.tokens.episode import Demand
from rlscaler_rl.simulation.tokens.servers import KINDS, SERVERS, Kind, Server
from rlscaler_rl.simulation.tokens.services import Requests, Services, drawn_requests

GRID = 10
"""Seconds between the points at which a mix is drawn."""

FIRST_SECONDS = 2.5
LEAST_TOKEN_SECONDS = 0.15
ITERATIONS = 5.0
"""The objective of a token is the larger of the seconds above and so many empty iterations of the server."""

SIZES, MOST, SPARE = (2.0, 40.0), 2.5, 2
"""Replicas that a busy load needs, drawn log-uniformly; the load may reach twice of that, and `maxReplicas` is `MOST`
times as much and `SPARE` more."""

COLD_STARTS, LONGEST_START = (60.0, 300.0), 1.3
"""Shortest cold start of a service in seconds, and its longest one over that."""

LOADS = generative.LoadModel(empty_share=0.0)
"""A service without a request needs no replica, so that nothing could be said of its cost."""

DRIFT, DRIFT_SECONDS = 0.6, 3600.0
"""Largest standard deviation of the logarithm of the rate of one kind of requests, and its correlation time."""

SURGES, SURGE, SURGE_SECONDS = 1.0, (1.5, 5.0), (300.0, 1500.0)
"""Surges of one kind an hour, by which factor, and for how long."""

TUNED_SEED = 1000
"""Services that settings are chosen on have seeds from here on."""

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


@dataclass(frozen=True, slots=True)
class Setup:
    """Services as drawn before their load."""

    servers: list[str]
    first_seconds: Float  # (N,) objective of the first token
    mixes: Float  # (N, KINDS) usual shares
    size: Float  # (N,) replicas that a load of 1 needs
    tests: list[tuple[Probe, ...]]
    """Load tests of each service as in `load_tests`."""

    @classmethod
    def drawn(cls, count: int, rng: np.random.Generator, first_seconds: Float) -> Setup:
        """Draw mixes and sizes of so many services, the servers in turn."""
        servers = in_turn(count)
        mixes = rng.dirichlet(np.full(len(KINDS), 1.0), count)
        size = np.exp(rng.uniform(np.log(SIZES[0]), np.log(SIZES[1]), count))
        tests = [
            load_tests(SERVERS[name], mix, float(each), token_objective(name))
            for name, mix, each in zip(servers, mixes, first_seconds, strict=True)
        ]
        return cls(servers, first_seconds, mixes, size, tests)

    def world(self, relative: Float, kinds: Float, rng: np.random.Generator, seed: int) -> World:
        """Return the services with drawn requests.

        :param relative: load (N, T) of every second.
        :param kinds: (N, T, KINDS) rates of the kinds over that load.
        :param rng: draws cold starts and errors of the declared capacity, `seed` the requests.
        """
        usual = np.array([test[0].per_second for test in self.tests])
        rates = relative * (self.size * usual)[:, None] * kinds.sum(axis=2)
        shares = list(kinds / kinds.sum(axis=2, keepdims=True))
        each = [needs(mix.tolist(), test[0], test[1:]) for mix, test in zip(self.mixes, self.tests, strict=True)]
        requests = drawn_requests(list(rates), shares, [1000 * seed + i for i in range(len(rates))], each)
        sizes = self.size * relative[:, :60].mean(axis=1), MOST * self.size
        tests = self.tests
        return world(self.servers, tests, tests, requests, sizes, relative.shape[1], rng, seed, self.first_seconds)


def drawn(count: int, seconds: int, seed: int, objectives: Sequence[float] = (FIRST_SECONDS,)) -> World:
    """Draw services and their requests; `objectives` of the first token, in seconds, are drawn from these."""
    rng = np.random.default_rng([seed, 21])
    setup = Setup.drawn(count, rng, np.random.default_rng([seed, 23]).choice(objectives, count))
    relative = np.clip(generative.draw(count, seconds, rng, LOADS).rate, 0.0, 2.0).astype(np.float64)
    kinds = np.stack([drawn_kinds(mix, seconds, rng) for mix in setup.mixes])
    return setup.world(relative, kinds, rng, seed)


def world(
    names: Sequence[str],
    tests: Sequence[tuple[Probe, ...]],
    known: Sequence[tuple[Probe, ...]],
    requests: Requests,
    sizes: tuple[Float, Float],
    seconds: int,
    rng: np.random.Generator,
    seed: int,
    first_seconds: Float | float = FIRST_SECONDS,
) -> World:
    """Return services with drawn cold starts and errors of the declared capacity.

    :param tests: load tests of each service as in `load_tests`; the declaration goes by those of `known`.
    :param sizes: replicas (N,) that the load needs in the beginning, and at most.
    :param first_seconds: objective of the first token.
    """
    low = np.exp(rng.uniform(np.log(COLD_STARTS[0]), np.log(COLD_STARTS[1]), len(names)))
    services = Services.of(
        [SERVERS[name] for name in names],
        seed=1000 * seed,
        first_seconds=first_seconds,
        token_seconds=[token_objective(name) for name in names],
        cold_start_low=low,
        cold_start_high=LONGEST_START * low,
        initial=np.ceil(1.2 * sizes[0]).clip(1),
        max_replicas=np.ceil(sizes[1]) + SPARE,
    )
    off = np.exp(rng.uniform(np.log(1 - WRONG), np.log(1 + WRONG), len(names)))
    declared = _demand(known)
    declared = replace(declared, capacity=declared.capacity * off, per_second=declared.per_second * off)
    return World(tuple(names), services, requests, _demand(tests), declared, seconds)


def in_turn(count: int) -> list[str]:
    """Names of the servers of so many services, the servers in turn."""
    return [list(SERVERS)[i % len(SERVERS)] for i in range(count)]


def token_objective(server: str) -> float:
    """Objective of a further token in seconds."""
    return max(LEAST_TOKEN_SECONDS, ITERATIONS * SERVERS[server].iteration_ms / 1000)


def _demand(tests: Sequence[tuple[Probe, ...]]) -> Demand:
    weights = [weights_of(test) for test in tests]
    return Demand(
        prompt_weight=np.array([weight.prompt for weight in weights]),
        answer_weight=np.array([weight.answer for weight in weights]),
        capacity=np.array([weight.capacity for weight in weights]),
        per_second=np.array([test[0].per_second for test in tests]),
        tokens=np.array([[test[0].prompt, test[0].answer] for test in tests]),
    )


def plain(demand: Demand) -> Demand:
    """The same with all tokens alike."""
    capacity = demand.per_second * demand.tokens.sum(axis=1)
    return replace(demand, answer_weight=np.ones(len(demand)), capacity=capacity)


def load_tests(
    server: Server, share: Sequence[float], first: float, token: float, kinds: Sequence[Kind] = tuple(KINDS.values())
) -> tuple[Probe, ...]:
    """Return load tests of a mix, shares of `kinds` in order, and of each of KINDS alone, NaN of one that the server
    cannot carry.

    Raises ScenarioError for an objective of the first or of each further token, in seconds, that the server misses
    under any load.
    """
    return load_test(server, share, first, token, kinds), *_alone(server, first, token)


@lru_cache(maxsize=256)
def _alone(server: Server, first: float, token: float) -> tuple[Probe, ...]:
    def test(kind: str) -> Probe:
        # A small server may miss the objective on kinds of requests that its users never send.
        try:
            return load_test(server, only(kind), first, token)
        except ScenarioError:
            return Probe(np.nan, np.nan, np.nan)

    return tuple(test(kind) for kind in KINDS)


def drawn_kinds(mix: Float, seconds: int, rng: np.random.Generator) -> Float:
    """Draw rates (T, KINDS) of the kinds over the usual rate of all, with drift and surges."""
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
