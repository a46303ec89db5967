"""Result of a comparison on days: a row for each load and contender, and the differences between contenders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from pydantic import Field

from rlscaler_core.decision.forecaster.memory import LEVELS
from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.days.setting import Setting
from rlscaler_rl.results.document import Document
from rlscaler_rl.results.statistics import Interval, Verdict, mean_interval
from rlscaler_rl.results.table import Table


class Score(Document):
    """One contender on one load; each list has a figure for each day, in the order of `PlayedLoad.days`."""

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
    gpu_starts: list[float]
    """GPU pods that were started."""

    cpu_starts: list[float]

    def rows(self, rows: Sequence[int]) -> Score:
        """Return the figures of some of the days."""
        return self.model_copy(update={name: [getattr(self, name)[row] for row in rows] for name in FIGURES})

    def mean(self, metric: str) -> float:
        """Return the mean of a metric over the days."""
        return float(np.mean(getattr(self, metric)))


FIGURES = ("j", "cost", "late_percent", "gpu_hours", "cpu_hours", "gpu_starts", "cpu_starts")


class PlayedLoad(Document):
    """One load and its days."""

    name: str
    group: str
    """Origin of the load."""

    drawn: bool
    """True where seconds were drawn from wider bins."""

    by_second: bool
    """True where the load counts every second."""

    days: list[int]
    """Number of the day of each row."""

    settings: list[Setting]
    """Setting of each row."""

    seconds: int
    """Length of a day."""

    requests: float
    digest: str
    """SHA-256 of the scenarios that were played."""


class Difference(Document):
    """J of a policy over that of a rival, minus 1, in percent: below 0 the policy is better."""

    policy: str
    rival: str
    interval: Interval
    """Over the origins: loads of one origin are one unit."""

    origins: int
    worst: float
    worst_load: str

    @property
    def verdict(self) -> Verdict:
        return self.interval.verdict


class DayTable(Document):
    """The result file of a comparison on days."""

    kind: str
    """`transfer` or `own`."""

    level: str
    share: float
    """Part of the capacity of all replicas that a load's reference rate needs."""

    version: str
    loads: list[PlayedLoad]
    scores: list[Score]
    settings: dict[str, dict[str, dict[str, float | int | str | bool]]] = Field(default_factory=dict)
    """Contender -> load -> the settings that were tuned on its past."""

    networks: dict[str, str] = Field(default_factory=dict)
    """Contender -> SHA-256 of its network, for contenders that have one."""

    coverage: dict[str, list[list[float | None]]] = Field(default_factory=dict)
    """Load -> pool -> share of the forecast rule's forecasts that held, for each of the forecaster's `LEVELS`."""

    seconds: float
    peak_mib: int

    def of(self, load: str, contender: str) -> Score | None:
        """Return one row, or None where this contender did not play."""
        return next((row for row in self.scores if (row.load, row.contender) == (load, contender)), None)

    def where(self, holds: Callable[[PlayedLoad, Setting], bool]) -> DayTable:
        """Return the table of those rows alone whose load and setting satisfy `holds`."""
        rows = {load.name: [i for i, item in enumerate(load.settings) if holds(load, item)] for load in self.loads}
        loads = [
            load.model_copy(
                update={name: [getattr(load, name)[i] for i in rows[load.name]] for name in ("days", "settings")}
            )
            for load in self.loads
            if rows[load.name]
        ]
        scores = [score.rows(rows[score.load]) for score in self.scores if rows[score.load]]
        return self.model_copy(update={"loads": loads, "scores": scores})

    def contenders(self) -> dict[str, Score]:
        """Return the first row of each contender by its name."""
        rows: dict[str, Score] = {}
        for row in self.scores:
            rows.setdefault(row.contender, row)
        return rows


def percent_by_load(table: DayTable, policy: str, rival: str) -> dict[str, float]:
    """Return J of the policy over that of the rival, minus 1, in percent, of each load that both played."""
    pairs = {load.name: (table.of(load.name, policy), table.of(load.name, rival)) for load in table.loads}
    return {name: 100 * (own.mean("j") / other.mean("j") - 1) for name, (own, other) in pairs.items() if own and other}


def by_origin(table: DayTable, percent: dict[str, float]) -> Float:
    """Return the mean (origins,) of figures of loads: the loads of one origin are one unit of the bootstrap."""
    groups: dict[str, list[float]] = {}
    for load in table.loads:
        if load.name in percent:
            groups.setdefault(load.group, []).append(percent[load.name])
    return np.array([np.mean(figures) for figures in groups.values()])


def difference(table: DayTable, policy: str, rival: str) -> Difference | None:
    """Compare two contenders over loads. Return None where no load was played by both."""
    percent = percent_by_load(table, policy, rival)
    if not percent:
        return None
    values, worst = by_origin(table, percent), max(percent, key=percent.__getitem__)
    return Difference(
        policy=policy,
        rival=rival,
        interval=mean_interval(values),
        origins=len(values),
        worst=percent[worst],
        worst_load=worst,
    )


def seeds_difference(table: DayTable, rival: str) -> Interval | None:
    """Return the difference of J, in percent, of all networks of the table to a rival, over networks and origins.

    The networks are seeds of one training. None where there is none, or where one of them or the rival did not play a
    load that the others played.
    """
    values = [by_origin(table, percent_by_load(table, name, rival)) for name in table.networks]
    if not values or not len(values[0]) or len({len(origins) for origins in values}) > 1:
        return None
    return mean_interval(np.array(values))


def report(table: DayTable, *, coverage: bool = False) -> list[str]:
    """Return the report in Markdown: losses of the policies first, then J and lateness of each load."""
    lines = [
        f"## Days of {len(table.loads)} loads, {table.kind}",
        "",
        *_verdicts(table).markdown(),
        "",
        *_scores(table).markdown(),
        "",
        *(line for part in _by_second(table) for line in (*part.markdown(), "")),
        "Bold: the least J of those that can be had; references are left out. (s): seconds drawn from wider bins.",
    ]
    if len(table.networks) > 1:
        lines += ["", "### Seeds", "", *_seeds(table).markdown()]
    if len(table.loads) == 1:
        lines += ["", *_single_load(table).markdown()]
    return [*lines, "", *_coverage(table).markdown()] if coverage else lines


def _verdicts(table: DayTable) -> Table:
    shown = table.contenders()
    policies = [name for name, row in shown.items() if row.role == "policy"]
    pairs = [difference(table, policy, rival) for policy in policies for rival in shown if rival != policy]
    order = {Verdict.LOSS: 0, Verdict.UNDECIDED: 1, Verdict.WIN: 2}
    rows = [
        (
            f"{shown[item.policy].label} against {shown[item.rival].label}",
            item.interval.shown(),
            f"{item.origins}",
            f"{item.worst_load} {item.worst:+.1f}",
            item.verdict,
        )
        for item in sorted(filter(None, pairs), key=lambda item: (policies.index(item.policy), order[item.verdict]))
    ]
    return Table(("policy against", "J, % [95 % interval]", "origins", "worst load, %", "verdict"), rows)


def _by_second(table: DayTable) -> Iterator[Table]:
    """Yield a table of the loads that are known by the second for each scrape, where they have several."""
    loads = [load for load in table.loads if load.by_second]
    scrapes = sorted({setting.scrape for load in loads for setting in load.settings})
    for scrape in scrapes if len(scrapes) > 1 else ():
        part = table.where(lambda load, setting, at=scrape: load.by_second and setting.scrape == at)  # type: ignore[misc]
        yield _scores(part, f"known by the second, scrape {scrape} s: J (late %)")


def _scores(table: DayTable, head: str = "J (late %)") -> Table:
    shown = table.contenders()
    return Table((head, "rows", *(row.label for row in shown.values())), list(_load_rows(table, list(shown))))


def _load_rows(table: DayTable, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for load in table.loads:
        rows = [table.of(load.name, name) for name in names]
        least = min(row.mean("j") for row in rows if row is not None and row.role != "reference")
        cells = ["-" if row is None else _cell(row, least) for row in rows]
        yield f"{load.name}{' (s)' if load.drawn else ''}", f"{len(load.days)}", *cells


def _cell(row: Score, least: float) -> str:
    text = f"{row.mean('j'):.2f} ({row.mean('late_percent'):.2f})"
    # Scores that differ by less than half a thousandth print alike, and are both the least.
    return f"**{text}**" if row.mean("j") <= least * 1.0005 and row.role != "reference" else text


def _seeds(table: DayTable) -> Table:
    """Compare all networks together with every other contender."""
    rivals = {name: row.label for name, row in table.contenders().items() if name not in table.networks}
    rows = [
        (label, interval.shown(), interval.verdict)
        for name, label in rivals.items()
        if (interval := seeds_difference(table, name)) is not None
    ]
    return Table((f"{len(table.networks)} networks together against", "J, % [95 % interval]", "verdict"), rows)


SINGLE = {
    "autoscaler": "{0[label]}",
    "J": "{0[j]:.2f}",
    "% above hindsight": "{0[above]:+.1f}",
    "GPU-hours": "{0[gpu_hours]:.1f}",
    "CPU-hours": "{0[cpu_hours]:.1f}",
    "GPU starts": "{0[gpu_starts]:.0f}",
    "CPU starts": "{0[cpu_starts]:.0f}",
    "cost, GPU replicas": "{0[cost]:.2f}",
    "late %": "{0[late_percent]:.2f}",
    "worst day %": "{0[worst]:.2f}",
}


def _single_load(table: DayTable) -> Table:
    """Compare all contenders on the only load with the columns of `Report.table`."""
    known = next(row.mean("j") for row in table.scores if row.role == "reference")
    rows = [
        {name: row.mean(name) for name in FIGURES}
        | {"label": row.label, "worst": max(row.late_percent)}
        | {"above": None if row.role == "reference" else 100 * (row.mean("j") / known - 1)}
        for row in table.scores
    ]
    return Table.of(SINGLE, rows)


def _coverage(table: DayTable) -> Table:
    """Return how often the forecaster's quantiles held on the days of each load, in percent."""
    heads = [f"{pool} {100 * level:.0f} %" for pool in ("GPU", "CPU") for level in LEVELS]
    rows = [
        (load, *("-" if share is None else f"{100 * share:.1f}" for pool in pools for share in pool))
        for load, pools in table.coverage.items()
    ]
    return Table(("forecasts that held, %", *heads), rows)
