"""Comparing ways to share a pool: the same tenants, loads and seeds under each, with intervals over the pools."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from rlscaler_core.arbiter.arbitrate import jain
from rlscaler_core.arbiter.rules import RuleName
from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.evaluation.statistics import Design, Interval, weights
from rlscaler_rl.tenants.draw import Drawn, Request, draw
from rlscaler_rl.tenants.play import Played, Sharer, play
from rlscaler_rl.tenants.room import share_held
from rlscaler_rl.tenants.signals import Loss

ENOUGH = 10**6
"""So many GPUs in a pool that no pod waits for one."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """A way to share a pool, and who proposes."""

    name: str
    label: str
    make: Callable[[], Any]
    rule: RuleName | Sharer | None = None
    agents: Callable[[Request], Played] | None = None
    """Plays the pools of a request with agents of its own, in place of the two above."""
    alone: bool = False
    """Each tenant has all that it asks for: a reference, not a way to share."""


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


class Figure(BaseModel):
    """A mean over the pools, with its interval."""

    model_config = ConfigDict(extra="forbid")

    mean: float
    low: float
    high: float


class Row(BaseModel):
    """One arrangement."""

    model_config = ConfigDict(extra="forbid")

    name: str
    label: str
    figures: dict[str, Figure]
    pools: dict[str, list[float]]
    """The same figures of every pool."""
    against: dict[str, Figure]
    """J over that of others, less one, in %; below 0 is better."""


class Table(BaseModel):
    """What a comparison came to."""

    model_config = ConfigDict(extra="forbid")

    version: str
    request: dict[str, Any]
    gpus: list[int]
    rows: list[Row]
    seconds: float


def compare(
    request: Request,
    progress: Callable[[str], None],
    arrangements: Sequence[Arrangement] = ARRANGEMENTS,
    loss: Loss | None = None,
) -> Table:
    """Play all arrangements, `alone` and the rivals among them. Raises WorkloadError for a load that is not there."""
    began = time.monotonic()
    drawn = draw(request)
    progress(f"{request.pools} pools of {request.tenants} tenants, {request.hours} hours")
    played: dict[str, Played] = {}
    for one in arrangements:
        progress(one.label)
        if one.agents is not None:
            played[one.name] = one.agents(request)
            continue
        gpus = np.full_like(drawn.gpus, ENOUGH) if one.alone else drawn.gpus
        played[one.name] = play(drawn.scenarios, drawn.tenants, gpus, one.make(), one.rule, loss, drawn.changes)
    figures = {name: figures_of(drawn, run, played["alone"]) for name, run in played.items()}
    drawn_often = weights(Design(1, request.pools))
    rows = [
        Row(
            name=one.name,
            label=one.label,
            figures={name: _mean(values, drawn_often) for name, values in figures[one.name].items()},
            pools={name: [float(value) for value in values] for name, values in figures[one.name].items()},
            against={
                rival: _relative(figures[one.name]["j"], figures[rival]["j"], drawn_often)
                for rival in RIVALS
                if rival != one.name
            },
        )
        for one in arrangements
    ]
    folder = None if request.folder is None else str(request.folder)
    described = asdict(request) | {"loads": list(request.loads), "folder": folder, "part": str(request.part)}
    gpus_ = [int(gpus) for gpus in drawn.gpus]
    return Table(
        version=version("rlscaler"),
        request=described,
        gpus=gpus_,
        rows=rows,
        seconds=round(time.monotonic() - began, 1),
    )


def figures_of(drawn: Drawn, run: Played, alone: Played) -> dict[str, Float]:
    """Give the figures (P,) of every pool."""
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
        "jain": np.array([jain(one, np.ones(shape[1])) for one in share]),
        "below": 100 * run.below.reshape(shape).mean(axis=1),
    }


def _mean(values: Float, drawn_often: Float) -> Figure:
    return _figure(Interval.of(float(values.mean()), drawn_often @ values))


def _relative(values: Float, others: Float, drawn_often: Float) -> Figure:
    ratio = 100 * (values.mean() / others.mean() - 1)
    return _figure(Interval.of(float(ratio), 100 * (drawn_often @ values / (drawn_often @ others) - 1)))


def _figure(interval: Interval) -> Figure:
    return Figure(mean=interval.mean, low=interval.low, high=interval.high)


def markdown(table: Table) -> Iterator[str]:
    """Yield the table as Markdown, and what each arrangement's J is against the rivals'."""
    yield f"| shared by | {' | '.join(FIGURES.values())} |"
    yield f"|{'---|' * (len(FIGURES) + 1)}"
    for row in table.rows:
        cells = (_cell(name, row.figures[name]) for name in FIGURES)
        yield f"| {row.label} | {' | '.join(cells)} |"
    yield ""
    yield f"| J against | {' | '.join(_label(table, name) for name in RIVALS)} |"
    yield f"|{'---|' * (len(RIVALS) + 1)}"
    for row in table.rows:
        against = (row.against.get(name) for name in RIVALS)
        cells = ("-" if one is None else f"{one.mean:+.1f} % [{one.low:+.1f}, {one.high:+.1f}]" for one in against)
        yield f"| {row.label} | {' | '.join(cells)} |"


def _cell(name: str, figure: Figure) -> str:
    digits = 3 if name in ("smallest", "jain") else 1
    return f"{figure.mean:.{digits}f} [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"


def _label(table: Table, name: str) -> str:
    return next(row.label for row in table.rows if row.name == name)


def write(table: Table, folder: Path) -> None:
    """Write table.json and table.md."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.json").write_text(table.model_dump_json(indent=2) + "\n")
    (folder / "table.md").write_text("\n".join(markdown(table)) + "\n")
