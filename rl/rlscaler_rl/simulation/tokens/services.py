"""Services of model servers: everything fixed before an episode begins, and every request that will come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float, Int, Rows
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.servers import KINDS, MOST_ANSWER, MOST_PROMPT, Kind, Server

LEAST_LOADED, ROUND_ROBIN = 0, 1
"""Routing: to the replica with the fewest requests that run or wait, or in turn."""


class Requests(NamedTuple):
    """Requests of N services, one after the other, each service's in order of arrival."""

    first: NDArray[np.int64]  # (N + 1,) position of the first of each service; the last entry is the number of all
    arrived: Float  # (M,) seconds since the episode began
    prompt: Int  # (M,) tokens
    answer: Int  # (M,) tokens
    cached: Float  # (M,) share of the prompt that a warm cache has
    need: Float  # (M,) replica-seconds that a request takes; NaN: not known


@dataclass(slots=True)
class Services(Rows):
    """One row per service and episode; times in seconds, costs of an iteration in seconds."""

    seed: Int  # (N,)
    iteration: Float  # (N,) a
    sequence: Float  # (N,) b
    prompt: Float  # (N,) c
    held: Float  # (N,) d
    request: Float  # (N,) before the first iteration of a request, which only its client sees
    kv_tokens: Int  # (N,)
    batched_tokens: Int  # (N,)
    sequences: Int  # (N,)
    warm: Float  # (N,) requests after which 63 % of what a warm prefix cache has is cached
    first_seconds: Float  # (N,) objective of the time to the first token
    token_seconds: Float  # (N,) objective of the time per output token; infinite: none
    patience: Float  # (N,) seconds until a client without a first token gives up
    retries: Int  # (N,) times that it tries again
    retry_seconds: Float  # (N,) after which
    cold_start_low: Float  # (N,) seconds, drawn uniformly
    cold_start_high: Float  # (N,)
    drain_seconds: Float  # (N,) that a removed replica may go on with its requests
    routing: Int  # (N,) LEAST_LOADED or ROUND_ROBIN
    initial: Int  # (N,) replicas, all ready
    min_replicas: Int  # (N,)
    max_replicas: Int  # (N,)

    @classmethod
    def of(cls, servers: list[Server], *, seed: int = 0, **columns: object) -> Services:
        """Services on the given servers; `columns` over `NOMINAL`, one value or one for each row.

        Raises ScenarioError that names the column and the remedy.
        """
        n = len(servers)
        constants = {
            "iteration": [server.iteration_ms / 1000 for server in servers],
            "sequence": [server.sequence_ms / 1000 for server in servers],
            "prompt": [server.prompt_ms / 1000 for server in servers],
            "held": [server.held_ms / 1000 for server in servers],
            "request": [server.request_ms / 1000 for server in servers],
            "kv_tokens": [server.kv_tokens for server in servers],
            "batched_tokens": [server.batched_tokens for server in servers],
            "sequences": [server.sequences for server in servers],
            "seed": seed + np.arange(n),
        }
        given: dict[str, object] = {**NOMINAL, **constants, **columns}
        if unknown := sorted(set(given) - set(cls.__dataclass_fields__)):
            raise ScenarioError(f"{', '.join(unknown)}: no column of a token service")
        filled = {}
        for name in cls.__dataclass_fields__:
            kind = np.int32 if cls.__dataclass_fields__[name].type == "Int" else np.float64
            try:
                filled[name] = np.broadcast_to(np.asarray(given[name], kind), (n,)).copy()
            except ValueError as error:
                raise ScenarioError(f"{name}: one value or {n} are needed, got {given[name]!r}") from error
        return _checked(cls(**filled))


NOMINAL: dict[str, object] = {
    "warm": 200.0,
    "first_seconds": 2.5,
    "token_seconds": 0.15,
    "patience": 30.0,
    "retries": 1,
    "retry_seconds": 2.0,
    "cold_start_low": 90.0,
    "cold_start_high": 150.0,
    "drain_seconds": 120.0,
    "routing": LEAST_LOADED,
    "initial": 2,
    "min_replicas": 1,
    "max_replicas": 16,
}


def _checked(services: Services) -> Services:
    checks = (
        ("iteration", services.iteration > 0, "an iteration takes time"),
        ("sequence", services.sequence >= 0, "must not be negative"),
        ("prompt", services.prompt > 0, "a token of a prompt takes time"),
        ("held", services.held >= 0, "must not be negative"),
        ("sequences", (services.sequences >= 1) & (services.sequences <= 1024), "from 1 to 1,024"),
        ("batched_tokens", services.batched_tokens > services.sequences, "must be above the sequences of a batch"),
        ("first_seconds", services.first_seconds > 0, "must be positive"),
        ("token_seconds", services.token_seconds > 0, "must be positive"),
        ("patience", services.patience > services.first_seconds, "must be above the objective of the first token"),
        ("retries", (services.retries >= 0) & (services.retries <= 10), "from 0 to 10"),
        ("cold_start_low", services.cold_start_low >= 0, "must not be negative"),
        ("cold_start_high", services.cold_start_high >= services.cold_start_low, "must not be below cold_start_low"),
        ("routing", (services.routing >= LEAST_LOADED) & (services.routing <= ROUND_ROBIN), "0 or 1"),
        ("min_replicas", services.min_replicas >= 1, "a service has at least 1 replica"),
        ("max_replicas", services.max_replicas >= services.min_replicas, "must not be below min_replicas"),
        ("initial", (services.initial >= 1) & (services.initial <= services.max_replicas), "from 1 to max_replicas"),
    )
    for name, good, remedy in checks:
        if not np.all(good):
            row = int(np.flatnonzero(~np.asarray(good))[0])
            raise ScenarioError(f"service {row}: {name} = {getattr(services, name)[row]}: {remedy}")
    return services


def checked(requests: Requests, services: Services) -> Requests:
    """The requests, or ScenarioError naming the service whose requests cannot be played."""
    for row in range(len(services)):
        mine = slice(int(requests.first[row]), int(requests.first[row + 1]))
        prompt, answer = requests.prompt[mine], requests.answer[mine]
        if (prompt < 1).any() or (answer < 1).any():
            raise ScenarioError(f"service {row}: a request has at least one token each of prompt and answer")
        if (np.diff(requests.arrived[mine]) < 0).any() or (requests.arrived[mine] < 0).any():
            raise ScenarioError(f"service {row}: requests must be in order of arrival, from 0 s on")
        if len(prompt) and (longest := int((prompt + answer).max())) >= services.kv_tokens[row] // 2:
            raise ScenarioError(
                f"service {row}: a request of {longest:,} tokens needs half of the KV cache of "
                f"{services.kv_tokens[row]:,}; shorten it, or take a server with a larger one"
            )
    return requests


def drawn_requests(
    rates: list[Float],
    shares: list[Float],
    seeds: list[int],
    needs: Sequence[Float] | None = None,
    kinds: Sequence[Kind] = tuple(KINDS.values()),
) -> Requests:
    """Requests of each service: a Poisson process of `rates` (T,) requests/s with `kinds` by `shares` (T, kinds).

    `needs` (kinds,) of each service are the replica-seconds of a request of each kind.
    """
    parts = []
    table = [np.array([getattr(kind, name) for kind in kinds]) for name in _LENGTHS]
    for row, (rate, share, seed) in enumerate(zip(rates, shares, seeds, strict=True)):
        rng = np.random.default_rng([seed, 11])
        counts = rng.poisson(rate)
        second = np.repeat(np.arange(len(rate)), counts)
        arrived = np.sort(second + rng.random(len(second)))
        second = arrived.astype(np.int64)
        chance = np.cumsum(share, axis=1)[second]
        kind = (rng.random(len(second))[:, None] * chance[:, -1:] > chance).sum(axis=1)
        prompt = table[0][kind] * np.exp(table[2][kind] * rng.standard_normal(len(kind)))
        answer = table[1][kind] * np.exp(table[3][kind] * rng.standard_normal(len(kind)))
        parts.append(
            (
                arrived,
                np.clip(np.rint(prompt), 1, MOST_PROMPT).astype(np.int32),
                np.clip(np.rint(answer), 1, MOST_ANSWER).astype(np.int32),
                table[4][kind],
                np.full(len(kind), np.nan) if needs is None else needs[row][kind],
            )
        )
    first = np.concatenate([[0], np.cumsum([len(part[0]) for part in parts])]).astype(np.int64)
    return Requests(first, *(np.concatenate(columns) for columns in zip(*parts, strict=True)))


_LENGTHS = ("prompt", "answer", "prompt_spread", "answer_spread", "cached")
