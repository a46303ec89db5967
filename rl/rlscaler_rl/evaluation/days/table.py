"""What a comparison on days found: one row for each load and contender, and what it says of the policies over loads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from rlscaler_core.decision.forecaster.memory import LEVELS
from rlscaler_rl.evaluation.statistics import FEWEST_UNITS, Design, Interval, Verdict, weights


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Score(_Strict):
    """One contender on one load; every list has a figure for each day, in the order of `DayTable.days`."""

    load: str
    contender: str
    label: str
    role: str
    j: list[float]
    """Cost plus half a GPU replica for each percent of late requests; lower is better."""

    cost: list[float]
    """Mean billed GPU replica equivalents, pending ones included."""

    late_percent: list[float]
    gpu_hours: list[float]
    """GPU replica-hours of the day."""

    cpu_hours: list[float]

    def mean(self, metric: str) -> float:
        """Give the mean of a metric over the days."""
        return float(np.mean(getattr(self, metric)))


class PlayedLoad(_Strict):
    """One load and its days."""

    name: str
    group: str
    drawn: bool
    """True where seconds were drawn from wider bins."""

    days: list[int]
    requests: float
    digest: str
    """Of the arrivals that were played, SHA-256."""


class Difference(_Strict):
    """J of a policy over that of a rival, minus 1, in percent: below 0 the policy is better."""

    policy: str
    rival: str
    mean: float
    low: float
    high: float
    groups: int
    """Loads of one origin are one observation."""

    worst: float
    worst_load: str

    @property
    def verdict(self) -> Verdict:
        return Interval(self.mean, self.low, self.high).verdict


class DayTable(_Strict):
    """The result file of a comparison on days."""

    kind: str
    """`transfer` or `own`."""

    level: str
    share: float
    """Part of the capacity of all replicas that a load's reference rate needs."""

    version: str
    loads: list[PlayedLoad]
    scores: list[Score]
    settings: dict[str, dict[str, dict[str, float | int | str | bool]]] = {}
    """Contender -> load -> the settings that were tuned on its past."""

    networks: dict[str, str] = {}
    """Contender -> SHA-256 of its network, for contenders that have one."""

    coverage: dict[str, list[list[float | None]]] = {}
    """Load -> pool -> share of the forecast rule's forecasts that held, for each of the forecaster's `LEVELS`."""

    seconds: float
    peak_mib: int

    def of(self, load: str, contender: str) -> Score | None:
        """Give one row; None where this contender did not play."""
        return next((row for row in self.scores if (row.load, row.contender) == (load, contender)), None)

    def contenders(self) -> dict[str, Score]:
        """Give the first row of each contender by its name."""
        found: dict[str, Score] = {}
        for row in self.scores:
            found.setdefault(row.contender, row)
        return found


FILE = "days.json"
"""Name of the table in the folder of a comparison."""


def by_origin(
    table: DayTable, policy: str, rival: str, loads: Sequence[str] | None = None
) -> dict[str, dict[str, float]]:
    """Give J of the policy over that of the rival, minus 1, in percent: origin -> load -> figure, where both played."""
    each: dict[str, dict[str, float]] = {}
    for load in table.loads:
        one, other = table.of(load.name, policy), table.of(load.name, rival)
        if one is not None and other is not None and (loads is None or load.name in loads):
            each.setdefault(load.group, {})[load.name] = 100 * (one.mean("j") / other.mean("j") - 1)
    return each


def difference(table: DayTable, policy: str, rival: str, loads: Sequence[str] | None = None) -> Difference | None:
    """Compare two contenders over loads; None where no load was played by both.

    Loads of one origin are averaged first, and the bootstrap draws origins. Fewer than three decide nothing: their
    interval is without bounds.
    """
    each = by_origin(table, policy, rival, loads)
    if not each:
        return None
    of_loads = {load: percent for group in each.values() for load, percent in group.items()}
    worst_load = max(of_loads, key=of_loads.__getitem__)
    values = np.array([np.mean(list(group.values())) for group in each.values()])
    interval = Interval(float(values.mean()), -np.inf, np.inf)
    if len(values) >= FEWEST_UNITS:
        interval = Interval.of(interval.mean, weights(Design(1, len(values))) @ values)
    return Difference(
        policy=policy,
        rival=rival,
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        groups=len(values),
        worst=of_loads[worst_load],
        worst_load=worst_load,
    )


def markdown(table: DayTable) -> Iterator[str]:
    """Give the lines of the report: what the policies lose and win first, then J and lateness of every load."""
    yield from _verdicts(table)
    yield ""
    shown = list(table.contenders())
    labels = {name: row.label for name, row in table.contenders().items()}
    yield f"| J (late %) | days | {' | '.join(labels[name] for name in shown)} |"
    yield f"|---|---|{'---|' * len(shown)}"
    for load in table.loads:
        rows = [table.of(load.name, name) for name in shown]
        least = min(row.mean("j") for row in rows if row is not None and row.role != "reference")
        cells = ["-" if row is None else _cell(row, least) for row in rows]
        name = f"{load.name}{' (s)' if load.drawn else ''}"
        yield f"| {name} | {len(load.days)} | {' | '.join(cells)} |"
    yield ""
    yield "Bold: the least J of those that can be had; references are left out. (s): seconds drawn from wider bins."


def coverage_markdown(table: DayTable) -> Iterator[str]:
    """Give the lines that say how often the forecaster's quantiles held on the days of each load, in percent."""
    heads = [f"{pool} {100 * level:.0f} %" for pool in ("GPU", "CPU") for level in LEVELS]
    yield f"| forecasts that held, % | {' | '.join(heads)} |"
    yield f"|---|{'---|' * len(heads)}"
    for load, pools in table.coverage.items():
        cells = ["-" if share is None else f"{100 * share:.1f}" for pool in pools for share in pool]
        yield f"| {load} | {' | '.join(cells)} |"


def _cell(row: Score, least: float) -> str:
    text = f"{row.mean('j'):.2f} ({row.mean('late_percent'):.2f})"
    return f"**{text}**" if row.mean("j") <= least * 1.0005 and row.role != "reference" else text


def _verdicts(table: DayTable) -> Iterator[str]:
    yield "| policy against | mean difference of J, % | 95 % interval | origins | worst load | |"
    yield "|---|---|---|---|---|---|"
    labels = {name: row.label for name, row in table.contenders().items()}
    policies = [name for name, row in table.contenders().items() if row.role == "policy"]
    found = [
        found
        for policy in policies
        for rival in labels
        if rival != policy and (found := difference(table, policy, rival)) is not None
    ]
    order = {Verdict.LOSS: 0, Verdict.UNDECIDED: 1, Verdict.WIN: 2}
    for one in sorted(found, key=lambda one: (policies.index(one.policy), order[one.verdict])):
        interval = "-" if np.isinf(one.low) else f"{one.low:+.1f} to {one.high:+.1f}"
        name, worst = f"{labels[one.policy]} against {labels[one.rival]}", f"{one.worst_load} {one.worst:+.1f}"
        yield f"| {name} | {one.mean:+.1f} | {interval} | {one.groups} | {worst} | {one.verdict} |"
