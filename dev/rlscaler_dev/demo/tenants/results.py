"""The figures of the contenders from their raw records: `summary.json`, and a table in Markdown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_dev import markdown
from rlscaler_dev.demo.records import Float, Requests, read_requests, read_steps_by
from rlscaler_dev.demo.tenants.plan import GPUS, REQUESTS_PER_SECOND, TENANTS
from rlscaler_dev.demo.tenants.recorder import Counts

SPEC, HELD, READY, PENDING = (Counts._fields.index(name) for name in ("spec", "held", "ready", "pending"))
LATE_WEIGHT = 0.5
"""GPUs that one percent of late requests of a tenant counts for in J, as on the page of tenants."""

HEAD = (
    *("", "J in total", "GPUs held (%)", "of these busy (%)", "late, all requests (%)", "late, worst tenant (%)"),
    *("below guarantee, worst tenant (% of time)", "pods that wait", "replayed"),
)


@dataclass(frozen=True, slots=True)
class Played:
    """The records of one contender."""

    name: str
    title: str
    slo_ms: float
    seconds: Float
    """(T,) the ends of the seconds in which all loads ran, in seconds since the first of them."""
    replicas: dict[str, Float]
    """Tenant -> (T, columns of `Counts`) in force at these moments."""
    requests: dict[str, Requests]
    """Tenant -> the requests of these seconds."""
    replay: dict[str, Any] | None
    """Tally of decisions and sharings that a replay repeated; None where nothing is logged."""


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """Figures of one tenant."""

    requests: int
    late_percent: float
    """Requests that failed or took longer than the objective, of all."""
    held: float
    """Mean GPUs held."""
    below_guarantee_percent: float
    """Time in which it held less of its guarantee than it asked for."""
    waiting: float
    """Mean pods that waited for a GPU."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one contender; percentages are from 0 to 100."""

    title: str
    cost: float
    """J: mean GPUs held, and half a GPU for each percent of late requests of each tenant."""
    held_percent: float
    """GPUs held, of all."""
    busy_percent: float
    """Requests answered, of the capacity of the GPUs that were held."""
    late_percent: float
    """Requests that failed or were late, of all tenants' together."""
    tenants: dict[str, TenantFigures]
    replay: dict[str, Any] | None


def read(data: Path) -> Played:
    """Read the records of a contender."""
    run = json.loads((data / "run.json").read_text())
    replayed = data / "replay.json"
    replay = json.loads(replayed.read_text()) if replayed.exists() else None
    begin, first = max(run["begun"].values()), min(run["begun"].values())
    moments = np.arange(begin + 1, first + run["duration_seconds"])
    names = [tenant.name for tenant in TENANTS]
    replicas = read_steps_by(data / "replicas.csv", "tenant", names, Counts._fields)
    return Played(
        name=run["contender"],
        title=run["title"],
        slo_ms=run["slo_ms"],
        seconds=moments - first,
        replicas={name: steps.at(moments) for name, steps in replicas.items()},
        requests={
            tenant.name: read_requests(data / tenant.name / "requests.csv").between(moments[0] - 1, moments[-1])
            for tenant in TENANTS
        },
        replay=replay,
    )


def figures(played: Played) -> Figures:
    """Return the figures of one contender."""
    each = {tenant.name: _of_tenant(played, tenant.name, tenant.guaranteed) for tenant in TENANTS}
    late = [_late(played, name) for name in each]
    held = sum(tenant.held for tenant in each.values())
    answered = sum(int(np.sum(requests.ok)) for requests in played.requests.values())
    return Figures(
        title=played.title,
        cost=round(held + LATE_WEIGHT * sum(tenant.late_percent for tenant in each.values()), 2),
        held_percent=round(100 * held / GPUS, 1),
        busy_percent=round(100 * answered / (held * REQUESTS_PER_SECOND * len(played.seconds)), 1),
        late_percent=round(100 * float(np.mean(np.concatenate(late))), 2),
        tenants=each,
        replay=played.replay,
    )


def _late(played: Played, tenant: str) -> Any:
    """Return which requests (n,) of a tenant failed or took longer than the objective."""
    requests = played.requests[tenant]
    return ~requests.ok | (requests.latency_ms > played.slo_ms)


def _of_tenant(played: Played, name: str, guaranteed: int) -> TenantFigures:
    late, replicas = _late(played, name), played.replicas[name]
    below = replicas[:, HELD] < np.minimum(replicas[:, SPEC], guaranteed)
    return TenantFigures(
        requests=len(late),
        late_percent=round(100 * float(np.mean(late)), 2) if len(late) else 0.0,
        held=round(float(np.mean(replicas[:, HELD])), 2),
        below_guarantee_percent=round(100 * float(np.mean(below)), 1),
        waiting=round(float(np.mean(replicas[:, PENDING])), 2),
    )


def table(contenders: list[Figures]) -> str:
    """Return two tables: totals of each contender, and late requests and GPUs of each tenant."""
    totals = [
        [
            row.title,
            f"{row.cost:.1f}",
            f"{row.held_percent:.0f}",
            f"{row.busy_percent:.0f}",
            f"{row.late_percent:.1f}",
            f"{max(tenant.late_percent for tenant in row.tenants.values()):.1f}",
            f"{max(tenant.below_guarantee_percent for tenant in row.tenants.values()):.1f}",
            f"{sum(tenant.waiting for tenant in row.tenants.values()):.1f}",
            _replayed(row),
        ]
        for row in contenders
    ]
    tenants = [
        [f"{tenant.namespace}/{tenant.name} ({tenant.guaranteed})"]
        + [
            f"{row.tenants[tenant.name].late_percent:.1f} % late, {row.tenants[tenant.name].held:.1f} GPUs"
            for row in contenders
        ]
        for tenant in TENANTS
    ]
    head = ["tenant (guaranteed)", *(row.title for row in contenders)]
    return markdown.table(HEAD, totals) + "\n\n" + markdown.table(head, tenants)


def _replayed(figures: Figures) -> str:
    if figures.replay is None:
        return "-"
    text = f"{figures.replay['same']} of {figures.replay['decisions']} decisions"
    shared = figures.replay["sharings"]
    return text if not shared else f"{text}, {figures.replay['sharingsSame']} of {shared} sharings"
