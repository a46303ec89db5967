"""Queries of a dashboard, answered by a live Prometheus."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import requests

from rlscaler_dev.cluster.dashboards.model import ROW, Dashboard, Panel, Target, expand
from rlscaler_dev.exceptions import DevClusterError

TIMEOUT_SECONDS = 30.0
POINTS = 240
"""Points of each series over the whole range."""

Values = Mapping[str, str]


@dataclass(frozen=True)
class Series:
    """One line of a panel."""

    name: str
    labels: Mapping[str, str]
    times: list[float]
    """Unix seconds."""
    values: list[float]
    """NaN where nothing is known."""

    @property
    def has_data(self) -> bool:
        return any(map(math.isfinite, self.values))


@dataclass(frozen=True)
class Shown:
    """A panel and the answers to its queries, one list of series for each."""

    panel: Panel
    answers: list[list[Series]]

    @property
    def unanswered(self) -> list[Target]:
        """Queries without a single series."""
        return [target for target, series in zip(self.panel.targets, self.answers, strict=True) if not series]

    @property
    def empty(self) -> bool:
        """No query has a number to show."""
        return not any(line.has_data for series in self.answers for line in series)


class Source:
    """One Prometheus, over the last seconds."""

    def __init__(self, url: str, last_seconds: float, rate_seconds: float) -> None:
        """`rate_seconds` replaces `$__rate_interval`: four scrapes, as in Grafana."""
        self._url, self._last_seconds, self._rate = url.rstrip("/"), last_seconds, f"{rate_seconds:g}s"
        self._session = requests.Session()
        self._session.trust_env = False

    @property
    def _step(self) -> float:
        """Seconds between two points of a series."""
        return max(1.0, self._last_seconds / POINTS)

    def resolve(self, dashboard: Dashboard, given: Values) -> dict[str, str]:
        """A value for every variable: as given, else all of them or the first. Raises DevClusterError."""
        values = {"__rate_interval": self._rate, **given}
        for variable in dashboard.variables:
            if variable.name in values:
                continue
            if variable.every:
                values[variable.name] = ".+"
                continue
            groups = self.instant(f"group by ({variable.label}) ({expand(variable.selector, values)})")
            names = sorted(group.labels.get(variable.label, "") for group in groups)
            if not names:
                raise DevClusterError(
                    f"Prometheus has no values for the variable {variable.name} ({variable.selector}): "
                    "is the operator scraped, and is there a policy?"
                )
            values[variable.name] = names[0]
        return values

    def show(self, dashboard: Dashboard, values: Values) -> Iterator[Shown]:
        """Every panel but the headings. Raises DevClusterError where Prometheus refuses a query."""
        for panel in dashboard.panels:
            if panel.kind != ROW:
                yield Shown(panel, [self._answer(target, values) for target in panel.targets])

    def marks(self, dashboard: Dashboard, values: Values) -> list[float]:
        """Unix seconds at which an annotation's query began to give something. Raises DevClusterError."""
        series = [answer for target in dashboard.marks for answer in self._answer(target, values)]
        gap = 1.5 * self._step
        return sorted(
            time
            for answer in series
            for before, time in zip([-math.inf, *answer.times], answer.times, strict=False)
            if time - before > gap
        )

    def _answer(self, target: Target, values: Values) -> list[Series]:
        query = expand(target.expr, values)
        series = self.instant(query) if target.instant else self.series(query)
        return [Series(target.name(answer.labels), answer.labels, answer.times, answer.values) for answer in series]

    def instant(self, query: str) -> list[Series]:
        """The newest values. Raises DevClusterError where Prometheus refuses the query."""
        return [
            Series("", row["metric"], [float(row["value"][0])], [float(row["value"][1])])
            for row in self._ask("query", query=query)
        ]

    def series(self, query: str) -> list[Series]:
        """The values of the last `last_seconds`. Raises DevClusterError where Prometheus refuses the query."""
        end = time.time()
        start = end - self._last_seconds
        rows = self._ask("query_range", query=query, start=start, end=end, step=self._step)
        return [
            Series("", row["metric"], [float(t) for t, _ in row["values"]], [float(v) for _, v in row["values"]])
            for row in rows
        ]

    def _ask(self, what: str, **parameters: str | float) -> list[dict]:  # type: ignore[type-arg]
        try:
            answer = self._session.post(f"{self._url}/api/v1/{what}", data=parameters, timeout=TIMEOUT_SECONDS)
            content = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise DevClusterError(f"{self._url}: {error}; is it the URL of a Prometheus?") from error
        if content.get("status") != "success":
            raise DevClusterError(f"{content.get('error', answer.text)}: {parameters['query']}")
        return list(content["data"]["result"])
