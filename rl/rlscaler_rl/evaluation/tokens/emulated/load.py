"""A load whose mix of requests changes: conversations, documents that join them, and a surge of long answers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.demand import Probe, Weights, needs, only, weights_of
from rlscaler_rl.simulation.tokens.drawn import FIRST_SECONDS, ITERATIONS, LEAST_TOKEN_SECONDS, load_tests
from rlscaler_rl.simulation.tokens.servers import KINDS, Server
from rlscaler_rl.simulation.tokens.services import Requests, Services, drawn_requests

USUAL = "chat"
DOCUMENTS, LONG = "rag", "reasoning"
DRIFT = (0.15, 0.5)
"""Parts of the load between which the documents grow from none to their full share."""

SURGE = (0.6, 0.8)
"""Parts of the load between which the surge lasts."""

CHAT_REPLICAS, DOCUMENT_REPLICAS, SURGE_REPLICAS = 2.5, 2.0, 3.0
"""Replicas that each kind of requests needs at its height."""


class Story(NamedTuple):
    """The load of one service, and the facts that its owner knows of it before: those of the usual mix."""

    services: Services
    requests: Requests
    weights: Weights
    usual: Probe


def replicas(seconds: int) -> Float:
    """Return the replicas (T, 3) that conversations, documents and long answers need in each second."""
    part = np.arange(seconds) / seconds
    documents = np.clip((part - DRIFT[0]) / (DRIFT[1] - DRIFT[0]), 0.0, 1.0)
    surge = (part >= SURGE[0]) & (part < SURGE[1])
    chat = np.full(seconds, CHAT_REPLICAS)
    return np.stack([chat, DOCUMENT_REPLICAS * documents, SURGE_REPLICAS * surge], axis=1)


def story(server: Server, seconds: int, seed: int, most: int) -> Story:
    """Draw the requests of so many seconds, for at most `most` replicas.

    Raises ScenarioError for a server that misses the objective under any load.
    """
    token = max(LEAST_TOKEN_SECONDS, ITERATIONS * server.iteration_ms / 1000)
    tests = load_tests(server, only(USUAL), FIRST_SECONDS, token)
    each = needs(only(USUAL), tests[0], tests[1:])
    order = [list(KINDS).index(kind) for kind in (USUAL, DOCUMENTS, LONG)]
    if np.isnan(each[order]).any():
        raise ScenarioError(
            f"{server.label} cannot answer {USUAL}, {DOCUMENTS} and {LONG} within {FIRST_SECONDS:g} s to the first "
            f"token and {token:g} s for each further one; name a faster server with --server"
        )
    rates = np.zeros((seconds, len(KINDS)))
    rates[:, order] = replicas(seconds) / each[order]
    total = rates.sum(axis=1)
    requests = drawn_requests([total], [rates / total[:, None]], [seed], [each])
    services = Services.of(
        [server],
        seed=seed,
        first_seconds=FIRST_SECONDS,
        token_seconds=token,
        # The cluster says when a pod is ready.
        cold_start_low=1e12,
        cold_start_high=1e12,
        drain_seconds=30.0,
        initial=1,
        max_replicas=most,
    )
    return Story(services, requests, weights_of(tests), tests[0])
