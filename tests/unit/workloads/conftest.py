"""A server on loopback that answers range queries as Prometheus does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.harness.serving import Quiet, serving

LIMIT = 11_000
"""Prometheus's own."""


@dataclass
class Api:
    """`series(time) -> {labels: value}` is what the store holds; None where a sample is missing."""

    series: Callable[[float], dict[str, float | None]] = lambda moment: {"": 1.0}
    token: str | None = None
    answer: tuple[int, str] | None = None
    """Said instead."""
    asked: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def respond(self, path: str, authorization: str | None) -> tuple[int, str]:
        if self.token is not None and authorization != f"Bearer {self.token}":
            return 401, "Unauthorized\n"
        if self.answer is not None:
            return self.answer
        if urlsplit(path).path != "/api/v1/query_range":
            return 404, "404 page not found\n"
        query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        self.asked.append(query)
        start, end, step = (float(query[name]) for name in ("start", "end", "step"))
        if (end - start) / step + 1 > LIMIT:
            return 400, _error("exceeded maximum resolution of 11,000 points per timeseries.")
        found: dict[str, list[list[Any]]] = {}
        for i in range(int((end - start) / step) + 1):
            moment = start + i * step
            for labels, value in self.series(moment).items():
                if value is not None:
                    found.setdefault(labels, []).append([moment, "NaN" if value != value else repr(value)])
        result = [{"metric": {"pod": labels} if labels else {}, "values": values} for labels, values in found.items()]
        return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def _error(text: str) -> str:
    return json.dumps({"status": "error", "errorType": "bad_data", "error": text})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    api = Api()

    class Handler(Quiet):
        def do_GET(self) -> None:  # noqa: N802
            status, text = api.respond(self.path, self.headers["Authorization"])
            self.answer(status, text.encode())

    with serving(Handler) as api.url:
        yield api
