"""GPU-hours at equal lateness: what each contender needs so that no more than a limit of a day's requests is late.

Who has one knob is set by the load's own past: of the settings that keep the limit on the tune days the cheapest, and
where none does the one with the fewest late requests. The rule that is steered by an objective is not tuned: it plays
the days before, and its price moves meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlscaler_core.decision.rule import Rule, RuleSettings
from rlscaler_core.decision.spec import SpecSettings
from rlscaler_core.decision.types import Float
from rlscaler_rl.baselines.contender import stacked
from rlscaler_rl.baselines.hpa import Hpa, HpaSettings, KedaRequestRate
from rlscaler_rl.evaluation.days.play import Days, after, played
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.days.table import Lateness
from rlscaler_rl.evaluation.tuning import spaces
from rlscaler_rl.simulation.episode import Result

LIMITS = (1.0, 0.1)
"""% of a day's requests that may be late; the objectives are 100 minus these."""

DAYS_BEFORE = 3
"""Days that a steered rule plays before the one that counts: its price can fall to the lowest meanwhile."""

STEERED, PRICED, HPA, KEDA = "rule_objective", "rule_price", "hpa_target", "keda_target"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Knob:
    """A contender with one setting that trades cost for lateness."""

    name: str
    label: str
    values: tuple[float, ...]
    make: Callable[[Sequence[float], int], Any]
    """(values (K,), repeats) -> a controller of K * repeats days, one value after the other."""


def _targets(targets: Sequence[float], repeats: int) -> HpaSettings:
    """Give Kubernetes' defaults with the same target for both pools."""
    both = [spaces.hpa({**spaces.HPA_DEFAULT, "target_gpu": one, "target_cpu": one}) for one in targets]
    return stacked(both, repeats)


KNOBS = (
    Knob(
        PRICED,
        "Forecast rule, fixed price by its past",
        (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
        lambda prices, n: Rule(stacked([RuleSettings(late_price=price) for price in prices], n)),
    ),
    Knob(
        HPA,
        "HPA, target by its past",
        (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95),
        lambda targets, n: Hpa(_targets(targets, n)),
    ),
    Knob(
        KEDA,
        "KEDA request rate, target by its past",
        (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1),
        lambda targets, n: KedaRequestRate(_targets(targets, n)),
    ),
)


def days_before(chosen: Sequence[tuple[ServiceLoad, int]]) -> list[tuple[ServiceLoad, int]]:
    """Give the days that a steered rule plays first: `DAYS_BEFORE` blocks of as many days as `chosen`, in their order.

    A load that has no earlier day plays its first one instead.
    """
    return [(load, max(number - back, 0)) for back in range(DAYS_BEFORE, 0, -1) for load, number in chosen]


def at_equal_lateness(
    days: Days, before: Days, tune: Days, progress: Progress, knobs: Sequence[Knob] = KNOBS
) -> list[Lateness]:
    """Play `days` after those of `days_before`, with what is chosen on `tune`; one row for each limit."""
    progress("at equal lateness: rule by its objective")
    rows = _steered(days, before)
    for knob in knobs:
        progress(f"at equal lateness: {knob.label}")
        rows += _chosen(knob, days, tune)
    return sorted(rows, key=lambda row: (days.loads.index(row.load), -row.limit))


def _steered(days: Days, before: Days) -> list[Lateness]:
    """Play the days before every day in their order, and then the day, under each objective side by side."""
    n, run = len(days.loads), None
    objectives = np.array([1 - limit / 100 for limit in LIMITS])
    rule = Rule(RuleSettings(spec=SpecSettings(objective=np.repeat(objectives, n))))
    for part in [*(before.take(np.arange(first, first + n)) for first in range(0, len(before.loads), n)), days]:
        part = part.tiled(len(LIMITS))
        run = played(part if run is None else after(part, run), lambda rate: rule)
    assert run is not None
    label = "Forecast rule by its objective"
    return [
        row
        for k, limit in enumerate(LIMITS)
        for row in _rows(days, run.result, k * n, (STEERED, label, limit), dict.fromkeys(days.loads, objectives[k]))
    ]


def _chosen(knob: Knob, days: Days, tune: Days) -> list[Lateness]:
    found = played(tune.tiled(len(knob.values)), lambda rate: knob.make(knob.values, len(tune.loads))).result
    cost, late = (column.reshape(len(knob.values), -1) for column in (found.cost, found.late_percent))
    settings = {
        (load, limit): knob.values[_cheapest(cost[:, some].mean(axis=1), late[:, some].max(axis=1), limit)]
        for load in dict.fromkeys(tune.loads)
        for some in [np.flatnonzero(np.array(tune.loads) == load)]
        for limit in LIMITS
    }
    values = [settings[load, limit] for limit in LIMITS for load in days.loads]
    result = played(days.tiled(len(LIMITS)), lambda rate: knob.make(values, 1)).result
    n = len(days.loads)
    return [
        row
        for k, limit in enumerate(LIMITS)
        for row in _rows(
            days,
            result,
            k * n,
            (knob.name, knob.label, limit),
            {load: settings[load, limit] for load in days.loads},
        )
    ]


def _cheapest(cost: Float, late: Float, limit: float) -> int:
    """Give the index of the least cost (K,) of those whose lateness (K,) keeps the limit, else of the least late."""
    keeps = late <= limit
    return int(np.argmin(np.where(keeps, cost, np.inf)) if keeps.any() else np.argmin(late))


def _rows(
    days: Days, result: Result, first: int, who: tuple[str, str, float], settings: dict[str, float]
) -> Iterator[Lateness]:
    """Give a row for each load; the results of the days begin at `first`."""
    name, label, limit = who
    for load in dict.fromkeys(days.loads):
        rows = first + np.flatnonzero(np.array(days.loads) == load)
        hours = days.scenarios.duration[rows - first] / 3600
        yield Lateness(
            load=load,
            contender=name,
            label=label,
            limit=limit,
            setting=round(float(settings[load]), 6),
            gpu_hours=[round(float(value), 3) for value in result.cost[rows] * hours],
            late_percent=[round(float(value), 4) for value in result.late_percent[rows]],
        )


def lateness_markdown(found: Sequence[Lateness]) -> Iterator[str]:
    """Give the lines of the report: GPU-hours a day and lateness, and the means over loads where both keep a limit."""
    names = {row.contender: row.label for row in found}
    cells = {(row.load, row.limit, row.contender): row for row in found}
    yield f"| GPU-hours a day (late %) | at most % late | {' | '.join(names.values())} |"
    yield f"|---|---|{'---|' * len(names)}"
    for limit in LIMITS:
        for load in dict.fromkeys(row.load for row in found):
            shown = [_cell(cells[load, limit, name]) for name in names]
            yield f"| {load} | {limit:g} | {' | '.join(shown)} |"
    for limit in LIMITS:
        kept = [_kept([row for row in found if (row.limit, row.contender) == (limit, name)]) for name in names]
        yield f"| loads on which it was kept | {limit:g} | {' | '.join(kept)} |"
    for limit in LIMITS:
        against = [_against(cells, limit, name) for name in names]
        yield f"| GPU-hours against HPA, where both kept it | {limit:g} | {' | '.join(against)} |"
    yield ""
    yield "†: more was late on one of the days. CPU replicas count by their price."


def _cell(row: Lateness) -> str:
    mark = "" if row.kept else " †"
    return f"{np.mean(row.gpu_hours):.1f} ({np.mean(row.late_percent):.2f}){mark}"


def _kept(rows: Sequence[Lateness]) -> str:
    return f"{sum(row.kept for row in rows)} of {len(rows)}"


def _against(cells: dict[tuple[str, float, str], Lateness], limit: float, name: str) -> str:
    """Say how much more it costs than the HPA in the mean over the loads where both kept the limit."""
    pairs = [
        (row, cells[load, limit, HPA])
        for (load, of, who), row in cells.items()
        if who == name and of == limit and row.kept and cells[load, limit, HPA].kept
    ]
    if name == HPA or not pairs:
        return "-"
    ratios = [np.mean(one.gpu_hours) / np.mean(other.gpu_hours) - 1 for one, other in pairs]
    return f"{100 * float(np.mean(ratios)):+.1f} % ({len(pairs)})"
