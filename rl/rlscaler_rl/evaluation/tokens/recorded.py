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
from rlscaler_rl.simulation.tokens.demand import Weights
from rlscaler_rl.simulation.tokens.servers import Kind
from rlscaler_rl.simulation.tokens.services import Requests

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
"""Columns of the traces of LLM inference that Azure has published."""


class Recorded(NamedTuple):
    """Requests in order of arrival."""

    arrived: Float  # (M,) seconds since the first
    prompt: Int  # (M,) tokens
    answer: Int  # (M,) tokens

    def last(self, seconds: int) -> Recorded:
        """Return the requests of the last seconds."""
        begin = max(self.arrived[-1] - seconds, 0.0)
        rows = self.arrived >= begin
        return Recorded(self.arrived[rows] - begin, self.prompt[rows], self.answer[rows])

    def kind(self) -> Kind:
        """Return log-normal lengths like the recorded ones, for load tests. A log tells nothing of a prefix cache."""
        prompt, answer = np.log(self.prompt), np.log(self.answer)
        middle = float(np.exp(np.median(prompt))), float(np.exp(np.median(answer)))
        return Kind("recorded requests", *middle, float(prompt.std()), float(answer.std()), 0.0, "the log")

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
