"""Table of a comparison on days by the error of the declared capacity: each contender at each error, over origins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlscaler_rl.evaluation.days.table import DayTable, by_origin, difference, percent_by_load
from rlscaler_rl.results import figures
from rlscaler_rl.results.document import Document
from rlscaler_rl.results.statistics import Interval, mean_interval
from rlscaler_rl.results.table import Column, Table

DAY = 86_400
PANELS = {"both": "both pools", "gpu": "GPU alone"}


class Cell(Document):
    """Figures of one contender at one error of the declared capacity, each a mean over origins."""

    pools: str
    error: float
    contender: str
    label: str
    role: str
    j: Interval
    late_percent: Interval
    gpu_starts: Interval
    """GPU pods that were started, a day; CPU pods likewise."""

    cpu_starts: Interval
    gpu_hours: Interval
    """GPU replica-hours of a day."""

    leader_percent: Interval | None
    """J of the leader over this one's, minus 1, in percent; None for the leader itself."""


class Lead(Document):
    """The leader against the best untuned autoscaler of each load, at one error."""

    pools: str
    error: float
    percent: Interval
    """J of the leader over the least J of them, minus 1, in percent, over origins."""

    worst: float
    worst_load: str
    starts_over_keda: float
    """GPU pods that the leader started over those of KEDA."""


class ByError(Document):
    """All cells, with the loads that they are about."""

    leader: str
    """Label of the policy that all others are compared with."""
    loads: list[str]
    origins: int
    scrape: int
    cells: list[Cell]
    leads: list[Lead]


def by_error(table: DayTable, leader: str = "rule") -> ByError:
    """Return the cells of all loads at the scrape that all loads were played with, compared with the `leader`."""
    scrape = main_scrape(table)
    chosen = table.where(lambda load, setting: setting.scrape == scrape)
    return ByError(
        leader=chosen.contenders()[leader].label,
        loads=[load.name for load in chosen.loads],
        origins=len({load.group for load in chosen.loads}),
        scrape=scrape,
        cells=list(_cells(chosen, leader)),
        leads=[_lead(pools, error, part, leader) for (pools, error), part in _parts(chosen)],
    )


def main_scrape(table: DayTable) -> int:
    """Return the scrape interval that all loads were played with, the longest."""
    return max(setting.scrape for load in table.loads for setting in load.settings)


def _parts(table: DayTable) -> Iterator[tuple[tuple[str, float], DayTable]]:
    """Yield the rows of each choice of pools at each error."""
    settings = {(setting.pools, setting.error): None for load in table.loads for setting in load.settings}
    for at in settings:
        yield at, table.where(lambda _, setting, at=at: (setting.pools, setting.error) == at)  # type: ignore[misc]


def _lead(pools: str, error: float, table: DayTable, leader: str) -> Lead:
    rivals = [name for name, row in table.contenders().items() if row.role == "untuned"]
    against = [percent_by_load(table, leader, rival) for rival in rivals]
    # The best rival of a load is the one that the leader is least ahead of there.
    percent = {load.name: max(each[load.name] for each in against) for load in table.loads}
    worst = max(percent, key=percent.__getitem__)
    own, keda = (_mean(table, name, "gpu_starts", daily=True).mean for name in (leader, "keda"))
    return Lead(
        pools=pools,
        error=error,
        percent=mean_interval(by_origin(table, percent)),
        worst=percent[worst],
        worst_load=worst,
        starts_over_keda=own / max(keda, 1.0),
    )


def _cells(table: DayTable, leader: str) -> Iterator[Cell]:
    for (pools, error), part in _parts(table):
        for name, row in part.contenders().items():
            against = difference(part, leader, name) if name != leader else None
            yield Cell(
                pools=pools,
                error=error,
                contender=name,
                label=row.label,
                role=row.role,
                j=_mean(part, name, "j"),
                late_percent=_mean(part, name, "late_percent"),
                gpu_starts=_mean(part, name, "gpu_starts", daily=True),
                cpu_starts=_mean(part, name, "cpu_starts", daily=True),
                gpu_hours=_mean(part, name, "gpu_hours", daily=True),
                leader_percent=against and against.interval,
            )


def _mean(table: DayTable, contender: str, metric: str, daily: bool = False) -> Interval:
    """Return the mean of a metric over origins; `daily`: as if every stretch lasted a day."""
    values = {
        load.name: row.mean(metric) * (DAY / load.seconds if daily else 1.0)
        for load in table.loads
        if (row := table.of(load.name, contender)) is not None
    }
    return mean_interval(by_origin(table, values))


CELLS: dict[str, Column] = {
    "capacity": lambda cell: f"{100 * cell.error:+.0f} %",
    "autoscaler": "{0.label}",
    "J": "{0.j:.2f}",
    "late %": "{0.late_percent:.2f}",
    "GPU starts a day": "{0.gpu_starts.mean:.0f}",
    "CPU starts": "{0.cpu_starts.mean:.0f}",
    "GPU-hours a day": "{0.gpu_hours.mean:.1f}",
    "leader, %": lambda cell: "" if cell.leader_percent is None else f"{cell.leader_percent:+.1f}",
}
LEADS: dict[str, Column] = {
    "pools": lambda lead: PANELS[lead.pools],
    "capacity": lambda lead: f"{100 * lead.error:+.0f} %",
    "J against the best, %": "{0.percent:+.1f}",
    "worst load, %": "{0.worst_load} {0.worst:+.1f}",
    "GPU starts over KEDA's": "{0.starts_over_keda:.1f}",
}


def tables(result: ByError) -> list[Table]:
    """Return the leader's lead over the best rival, then a table of all contenders for each choice of pools."""
    leads = Table.of(LEADS, result.leads, f"{result.leader} against the best of HPA, KEDA and Knative on each load")
    pools = dict.fromkeys(cell.pools for cell in result.cells)
    about = f"scrape {result.scrape} s, {result.origins} origins"
    return [
        leads,
        *(
            Table.of(CELLS, (cell for cell in result.cells if cell.pools == name), f"All, {PANELS[name]}, {about}")
            for name in pools
        ),
    ]


def draw(result: ByError, path: Path) -> None:
    """Draw J of each contender over the error, a panel for each choice of pools."""
    pools = list(dict.fromkeys(cell.pools for cell in result.cells))
    with figures.styled():
        picture = figures.figure(5.2 * len(pools), 4.2)
        panels = picture.subplots(1, len(pools), squeeze=False, sharey=True)[0]
        for axes, name in zip(panels, pools, strict=True):
            for contender in dict.fromkeys(cell.contender for cell in result.cells):
                cells = [cell for cell in result.cells if (cell.pools, cell.contender) == (name, contender)]
                leads = cells[0].label == result.leader
                colour = figures.colour("policy" if leads else contender, cells[0].role)
                places = [100 * cell.error for cell in cells]
                axes.plot(places, [cell.j.mean for cell in cells], "o-", color=colour, label=cells[0].label)
            axes.set_title(f"{PANELS[name]}, scrape {result.scrape} s")
            axes.set_xlabel("true capacity of a replica over the declared one, minus 1, %")
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:g}")
        panels[0].set_ylabel("J")
        panels[0].legend()
        figures.save(picture, path)
