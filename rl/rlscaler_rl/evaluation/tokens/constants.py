"""Constants of a model server by its load tests: those with which the token level gives the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tokens.client import Sent
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.servers import Server
from rlscaler_rl.simulation.tokens.services import Requests, Services

STARTS = tuple(product((0.9, 0.6, 0.3), (0.05, 0.5)))
"""Shares of an iteration that are there with any batch, and of a first token that is outside of iterations, under light
load; a search begins from each."""

CONSTANTS = ("iteration_ms", "sequence_ms", "prompt_ms", "held_ms", "request_ms")
LEAST_MS = 1e-7
PICOSECONDS = 1e9
STEP = 0.01
"""Step of the search's differences over the logarithm of a constant in picoseconds, which is above 0."""

EVALUATIONS = 40


class Figures(NamedTuple):
    """Figures of a load test in milliseconds."""

    first_p50: float
    first_p95: float
    token_p50: float
    token_p95: float
    all: float
    """From the first request to the last token of all answers."""


def measured(sent: Sent) -> Figures:
    """Return the figures of a load test as the client saw them."""
    return _figures(sent.first, sent.token, sent.seconds)


def simulated(server: Server, tests: Sequence[Sent]) -> list[Figures]:
    """Return the figures of load tests when their requests are played on the token level at the same moments.

    Raises ScenarioError where a request needs half of the KV cache.
    """
    until = max(20 * test.seconds for test in tests)
    services = Services.of(
        [server] * len(tests),
        initial=1,
        max_replicas=1,
        retries=0,
        first_seconds=until,
        patience=2 * until,
        token_seconds=np.inf,
    )
    at, prompt, answer = (np.concatenate([test[column] for test in tests]) for column in range(3))
    bounds = np.concatenate([[0], np.cumsum([len(test.at) for test in tests])]).astype(np.int64)
    nothing = np.zeros(len(at))
    level = TokenLevel(services, Requests(bounds, at, prompt, answer, nothing, nothing))
    level.advance(until)
    figures = []
    for test, a, b in zip(tests, bounds[:-1], bounds[1:], strict=True):
        # A server so slow that an answer is not complete by then counts as complete at the end of the simulation.
        first = np.nan_to_num(level.fleet.first[a:b], nan=until)
        token = np.where(test.answer > 1, np.nan_to_num(level.fleet.token[a:b], nan=until), np.nan)
        figures.append(_figures(first, token, test._replace(first=first, token=token).seconds))
    return figures


def fitted(server: Server, tests: Sequence[Sent]) -> Server:
    """Return the server with the constants with the least squares of the logarithms of simulated over measured figures.

    :param server: its limits are known; its constants of an iteration and of a request are not read.
    :param tests: load tests of two or more mixes; the first is under the lightest load.

    Raises EvaluationError where a measured time is 0 or unknown.
    """
    figures = np.array([measured(test) for test in tests])
    if not ((figures > 0) & np.isfinite(figures)).all():
        raise EvaluationError(
            "a load test has a time of 0 or none: tokens of an answer come together; make the server stream each token"
        )
    goal = np.log(figures)

    def constants(logarithms: Float) -> Server:
        values = np.exp(logarithms) / PICOSECONDS
        return replace(server, **dict(zip(CONSTANTS, values.tolist(), strict=True)))

    def residuals(logarithms: Float) -> Float:
        figures = simulated(constants(logarithms), tests)
        return np.asarray((np.log(figures) - goal).ravel())

    light = measured(tests[0])
    length = float(np.mean(tests[0].prompt))
    # By Little's law: requests/s times the seconds that each of them is a sequence.
    batch = max(float((tests[0].answer * light.token_p50).sum()) / light.all, 1.0)
    searches = []
    for fixed, outside in STARTS:
        rest = (1 - fixed) * light.token_p50 / 2 / batch
        prompt = max((1 - outside) * light.first_p50 - light.token_p50, 0.1 * light.first_p50) / length
        start = np.array([fixed * light.token_p50, rest, prompt, rest / length, outside * light.first_p50])
        bounds = (np.log(PICOSECONDS * LEAST_MS), np.inf)
        logarithms = np.log(PICOSECONDS * np.maximum(start, 2 * LEAST_MS))
        searches.append(least_squares(residuals, logarithms, bounds=bounds, diff_step=STEP, max_nfev=EVALUATIONS))
    return constants(min(searches, key=lambda result: float(result.cost)).x)


def _figures(first: Float, token: Float, seconds: float) -> Figures:
    values = [*np.percentile(first, (50, 95)), *np.nanpercentile(token, (50, 95)), seconds]
    return Figures(*(1000 * float(value) for value in values))
