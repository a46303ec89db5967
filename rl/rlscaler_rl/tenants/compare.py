"""Comparison of ways to share a pool: the same tenants, loads and seeds under each, with intervals over the pools."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from rlscaler_core.arbiter.arbitrate import jain
from rlscaler_core.arbiter.rules import RuleName
from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.results.document import Document, Progress
from rlscaler_rl.results.statistics import Interval, mean_interval, ratio_interval
from rlscaler_rl.results.table import Table
from rlscaler_rl.tenants.draw import Drawn, Request, draw
from rlscaler_rl.tenants.play import Played, Sharer, play
from rlscaler_rl.tenants.room import share_held
from rlscaler_rl.tenants.signals import Loss

ENOUGH = 10**6
"""GPUs of a pool in which no pod waits for one."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A way to share a pool, and the autoscaler that proposes replicas."""

    name: str
    label: str
    make: Callable[[], Any]
    rule: RuleName | Sharer | None = None
    agents: Callable[[Request], Played] | None = None
    """Plays the pools of a request with agents of its own, in place of `make` and `rule`."""
    alone: bool = False
    """Each tenant gets all GPUs that it requests: a reference, not a way to share."""


def _rule() -> Any:
    return load_bundled("rule")


ARRANGEMENTS = (
    Arrangement("hpa_race", "HPA 80 %, no budget", Hpa),
    Arrangement("race", "forecast rule, no budget", _rule),
    Arrangement("first_come", "first come", _rule, "FirstCome"),
    Arrangement("proportional", "proportional", _rule, "Proportional"),
    Arrangement("max_min", "weighted max-min", _rule, "MaxMinFair"),
    Arrangement("priority", "priority", _rule, "Priority"),
    Arrangement("alone", "(enough GPUs for all)", _rule, alone=True),
)
RIVALS = ("hpa_race", "race", "first_come", "max_min")

FIGURES = {
    "j": "J in total",
    "allocated": "GPUs held (%)",
    "busy": "GPUs busy (%)",
    "late": "late, mean tenant (%)",
    "worst": "late, worst tenant (%)",
    "smallest": "smallest tenant's share",
    "jain": "Jain's index",
    "below": "below guarantee (% of time)",
}
"""Figures of a pool by name, with their headings."""

HIGHEST = {"allocated": 100.0, "busy": 100.0, "late": 100.0, "worst": 100.0, "jain": 1.0, "below": 100.0}
"""The highest possible value of a figure; the lowest of each is 0."""


class Row(Document):
    """One arrangement."""

    name: str
    label: str
    figures: dict[str, Interval]
    """Mean of each figure over the pools."""
    pools: dict[str, list[float]]
    """The same figures of every pool."""
    against: dict[str, Interval]
    """J over that of others, less one, in %; below 0 is better."""


class Comparison(Document):
    """Result file of a comparison."""

    version: str
    request: dict[str, Any]
    gpus: list[int]
    rows: list[Row]
    seconds: float


def compare(
    request: Request,
    progress: Progress,
    arrangements: Sequence[Arrangement] = ARRANGEMENTS,
    loss: Loss | None = None,
) -> Comparison:
    """Play all arrangements, `alone` and the rivals among them. Raises WorkloadError for a load that is not there."""
    began = time.monotonic()
    drawn = draw(request)
    progress(f"{request.pools} pools of {request.tenants} tenants, {request.hours} hours")
    played: dict[str, Played] = {}
    for arrangement in arrangements:
        progress(arrangement.label)
        played[arrangement.name] = _play(arrangement, request, drawn, loss)
    figures = {name: figures_of(drawn, run, played["alone"]) for name, run in played.items()}
    folder = None if request.folder is None else str(request.folder)
    described = asdict(request) | {"loads": list(request.loads), "folder": folder, "part": str(request.part)}
    return Comparison(
        version=version("rlscaler"),
        request=described,
        gpus=[int(gpus) for gpus in drawn.gpus],
        rows=[_row(arrangement, figures) for arrangement in arrangements],
        seconds=round(time.monotonic() - began, 1),
    )


def _play(arrangement: Arrangement, request: Request, drawn: Drawn, loss: Loss | None) -> Played:
    if arrangement.agents is not None:
        return arrangement.agents(request)
    gpus = np.full_like(drawn.gpus, ENOUGH) if arrangement.alone else drawn.gpus
    return play(drawn.scenarios, drawn.tenants, gpus, arrangement.make(), arrangement.rule, loss, drawn.changes)


def _row(arrangement: Arrangement, figures: dict[str, dict[str, Float]]) -> Row:
    own = figures[arrangement.name]
    rivals = [name for name in RIVALS if name != arrangement.name]
    return Row(
        name=arrangement.name,
        label=arrangement.label,
        figures={name: mean_interval(values).within(0.0, HIGHEST.get(name, np.inf)) for name, values in own.items()},
        pools={name: [float(value) for value in values] for name, values in own.items()},
        against={name: ratio_interval(own["j"], figures[name]["j"]) for name in rivals},
    )


def figures_of(drawn: Drawn, run: Played, alone: Played) -> dict[str, Float]:
    """Return the figures (P,) of every pool."""
    shape = drawn.sizes.shape
    gpus, late = run.gpus.reshape(shape), run.late_percent.reshape(shape)
    share = share_held(run.gpus, alone.gpus).reshape(shape)
    there = np.maximum(drawn.gpus, 1)
    return {
        "j": run.j.reshape(shape).sum(axis=1),
        "allocated": 100 * gpus.sum(axis=1) / there,
        "busy": 100 * run.busy.reshape(shape).sum(axis=1) / there,
        "late": late.mean(axis=1),
        "worst": late.max(axis=1),
        "smallest": share[np.arange(len(share)), drawn.sizes.argmin(axis=1)],
        "jain": np.array([jain(held, np.ones(shape[1])) for held in share]),
        "below": 100 * run.below.reshape(shape).mean(axis=1),
    }


def report(comparison: Comparison) -> list[str]:
    """Return the figures of each arrangement as Markdown, and its J over that of the rivals."""
    labels = {row.name: row.label for row in comparison.rows}
    forms = {name: ".3f" if name in ("smallest", "jain") else ".1f" for name in FIGURES}
    figures = [(row.label, *(row.figures[name].shown(form) for name, form in forms.items())) for row in comparison.rows]
    against = [
        (row.label, *(row.against[name].shown(unit=" %") if name in row.against else "-" for name in RIVALS))
        for row in comparison.rows
    ]
    return [
        *Table(("shared by", *FIGURES.values()), figures).markdown(),
        "",
        *Table(("J against", *(labels[name] for name in RIVALS)), against).markdown(),
    ]
