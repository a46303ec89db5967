"""Recorded requests of a model server: moments of arrival, and tokens of prompts and answers."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlscaler_core.decision.types import Float, Int
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.demand import Probe, Weights, weights_of
from rlscaler_rl.simulation.tokens.drawn import (
    FIRST_SECONDS,
    TUNED_SEED,
    World,
    in_turn,
    load_tests,
    token_objective,
    world,
)
from rlscaler_rl.simulation.tokens.servers import SERVERS, Kind
from rlscaler_rl.simulation.tokens.services import Requests

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
"""Columns of the traces of LLM inference that Azure has published."""

CLASSES = 16
"""Classes of requests by the length of the prompt, in load tests."""

SHORTEST_SECONDS, LEAST_REQUESTS = 600, 100
"""Shortest half of a log that settings are tuned on or judged by, and fewest requests of it."""

MOST = 1.25
"""`maxReplicas` over the need of the busiest minute."""


class Recorded(NamedTuple):
    """Requests in order of arrival."""

    arrived: Float  # (M,) seconds since the first
    prompt: Int  # (M,) tokens
    answer: Int  # (M,) tokens

    def between(self, begin: float, end: float = np.inf) -> Recorded:
        """Return the requests from one moment to another, whose moments then count from `begin` on."""
        rows = (self.arrived >= begin) & (self.arrived < end)
        return Recorded(self.arrived[rows] - begin, self.prompt[rows], self.answer[rows])

    def last(self, seconds: int) -> Recorded:
        """Return the requests of the last seconds."""
        return self.between(max(self.arrived[-1] - seconds, 0.0))

    def check_fits(self, path: Path, kv_tokens: int, server: str, instead: str = "") -> None:
        """Raise EvaluationError naming the log for a request of half a KV cache; `instead` is a second remedy."""
        longest, fits = int((self.prompt + self.answer).max()), kv_tokens // 2
        if longest >= fits:
            raise EvaluationError(
                f"{path}: ContextTokens and GeneratedTokens of a request are {longest:,} together, and {server} takes "
                f"less than {fits:,}: remove the request from the log{instead}"
            )

    def times(self, times: int) -> Recorded:
        """Return `times` requests for each recorded one, as of a larger service.

        They arrive within half a second of the recorded request, with its lengths and those of the requests after it.
        """
        moments = np.concatenate([self.arrived + offset for offset in np.arange(times) / (2 * times)])
        order = np.argsort(moments, kind="stable")
        lengths = (np.concatenate([np.roll(each, -i) for i in range(times)]) for each in self[1:])
        return Recorded(moments[order], *(each[order] for each in lengths))

    def kinds(self) -> list[Kind]:
        """Return classes of requests by the length of the prompt, equally frequent and with log-normal lengths, for
        load tests. A log tells nothing of a prefix cache."""
        logs = np.log([self.prompt, self.answer])
        parts = np.array_split(np.argsort(self.prompt, kind="stable"), min(CLASSES, len(self.prompt)))
        fits = np.array([(*np.exp(logs[:, part].mean(axis=1)), *logs[:, part].std(axis=1)) for part in parts]).tolist()
        return [Kind("", prompt, answer, far, wide, 0.0, "the log") for prompt, answer, far, wide in fits]

    def requests(self, weights: Weights) -> Requests:
        """Return the requests of one service, each with a need by its weighted tokens."""
        need = (weights.prompt * self.prompt + weights.answer * self.answer) / weights.capacity
        first = np.array([0, len(self.arrived)], np.int64)
        return Requests(first, self.arrived, self.prompt, self.answer, np.zeros(len(need)), need)


def read_requests(path: Path) -> Recorded:
    """Read a CSV file with `COLUMNS`. Raises EvaluationError naming file, line, column and remedy."""
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.DictReader(file)
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise EvaluationError(
                f"{path}: no column {', '.join(missing)}; the first line has to name {', '.join(COLUMNS)}"
            )
        rows = [_request(f"{path}, line {reader.line_num}", row) for row in reader]
    if len(rows) < 2:
        raise EvaluationError(f"{path}: {len(rows)} requests; a load needs at least two")
    moments, prompt, answer = np.array(rows).T
    # Servers log a request when it ends.
    order = np.argsort(moments, kind="stable")
    return Recorded(moments[order] - moments[order[0]], *(each[order].astype(np.int32) for each in (prompt, answer)))


def _request(where: str, row: Mapping[str, str | None]) -> tuple[float, int, int]:
    """Return moment, tokens of the prompt and of the answer of a row; None: a cell is missing."""
    moment, prompt, answer = (row[name] or "" for name in COLUMNS)
    return _moment(where, moment), _tokens(where, COLUMNS[1], prompt), _tokens(where, COLUMNS[2], answer)


def _moment(where: str, text: str) -> float:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise EvaluationError(f"{where}: TIMESTAMP {text!r} is no time such as 2023-11-16 18:17:03.979") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _tokens(where: str, column: str, text: str) -> int:
    try:
        tokens = int(text)
    except ValueError:
        tokens = 0
    if not 1 <= tokens < 2**31:
        raise EvaluationError(
            f"{where}: {column} {text!r} is no whole number of tokens from 1 on; "
            "remove the request from the log if it failed"
        )
    return tokens


def half_of(label: str, seconds: float) -> int:
    """Return the seconds of the earlier half of a log, a multiple of 5. Raises EvaluationError for a short log."""
    half = int(seconds / 2) // 5 * 5
    if half < SHORTEST_SECONDS:
        raise EvaluationError(
            f"{label}: TIMESTAMP covers {seconds / 60:.1f} minutes; settings are tuned on the earlier half and judged "
            f"on the later one: name a log of {2 * SHORTEST_SECONDS // 60} minutes or more, or play a policy on it "
            "with `rlscaler tokens simulate`"
        )
    return half


def worlds(path: Path, services: int, seconds: int, times: int, seed: int) -> tuple[World, World]:
    """Return services that all get the requests of the end of a log: of the earlier half of it, and of the later one.

    Servers come in turn, cold starts and errors of the declared capacity are drawn, and declarations go by load tests
    of the earlier requests. `seconds` is the longest half, `times` as in `Recorded.times`.

    Raises EvaluationError naming file, column and remedy.
    """
    log = read_requests(path).times(times).last(2 * seconds)
    half = half_of(str(path), log.arrived[-1])
    log.check_fits(path, min(server.kv_tokens for server in SERVERS.values()), "the server with the smallest KV cache")
    parts = log.between(0, half), log.between(half, 2 * half)
    if (few := min(len(part.arrived) for part in parts)) < LEAST_REQUESTS:
        raise EvaluationError(
            f"{path}: a half of the log has {few} requests; name a log with {LEAST_REQUESTS} or more in each half"
        )
    tests = [_tests(part, path) for part in parts]
    draws = (max(services // 2, 2), TUNED_SEED + seed), (services, seed)
    past, judged = (
        _world(part, test, tests[0], *draw, half) for part, test, draw in zip(parts, tests, draws, strict=True)
    )
    return past, judged


def _tests(part: Recorded, path: Path) -> dict[str, tuple[Probe, ...]]:
    """Return the load tests of requests like those of a part, by server."""
    kinds = part.kinds()
    try:
        return {
            name: load_tests(server, [1.0] * len(kinds), FIRST_SECONDS, token_objective(name), kinds)
            for name, server in SERVERS.items()
        }
    except ScenarioError as error:
        raise EvaluationError(f"{path}: ContextTokens or GeneratedTokens are too many: {error}") from error


def _world(
    part: Recorded,
    tests: Mapping[str, tuple[Probe, ...]],
    known: Mapping[str, tuple[Probe, ...]],
    services: int,
    seed: int,
    seconds: int,
) -> World:
    names = in_turn(services)
    each = [part.requests(weights_of(tests[name]))[1:] for name in names]
    first = np.arange(services + 1) * len(part.arrived)
    requests = Requests(first, *(np.concatenate(columns) for columns in zip(*each, strict=True)))
    minute = (part.arrived // 60).astype(np.int64)
    replicas = np.array([np.bincount(minute, need) / 60 for *_, need in each])
    sizes = replicas[:, 0], MOST * replicas.max(axis=1)
    rng = np.random.default_rng([seed, 22])
    own, declared = ([by[name] for name in names] for by in (tests, known))
    return world(names, own, declared, requests, sizes, seconds, rng, seed)
