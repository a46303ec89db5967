"""The figures of the contenders from their raw records: `summary.json`, and a table in Markdown."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_dev.demo.records import Float, Requests, Steps, read_columns, read_requests
from rlscaler_dev.demo.tenants.plan import GPUS, REQUESTS_PER_SECOND, TENANTS
from rlscaler_dev.demo.tenants.recorder import COLUMNS
from rlscaler_dev.exceptions import RecordError

SPEC, HELD, READY, PENDING = (COLUMNS.index(name) for name in ("spec", "held", "ready", "pending"))
LATE_WEIGHT = 0.5
"""GPUs that one percent of late requests of a tenant counts for in J, as on the page of tenants."""


@dataclass(frozen=True, slots=True)
class Played:
    """The records of one contender."""

    name: str
    title: str
    slo_ms: float
    seconds: Float
    """(T,) the ends of the seconds in which all loads ran, in seconds since the first of them."""
    replicas: dict[str, Float]
    """Tenant -> (T, columns COLUMNS) in force at these moments."""
    requests: dict[str, Requests]
    """Tenant -> the requests of these seconds."""
    replay: dict[str, Any] | None
    """How many decisions and sharings came out again; None where nothing is logged."""


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """What one tenant got."""

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
    """What one contender came to; percentages are of 0 to 100."""

    title: str
    cost: float
    """J: mean GPUs held, and half a GPU for each percent of late requests of each tenant."""
    held_percent: float
    """GPUs held, of all."""
    busy_percent: float
    """Requests answered, of what the GPUs that were held could answer."""
    late_percent: float
    """Requests that failed or were late, of all tenants' together."""
    tenants: dict[str, TenantFigures]
    replay: dict[str, Any] | None


def read(folder: Path) -> Played:
    """Read what a contender left in its folder. Raises RecordError."""
    data = folder / "data"
    try:
        run = json.loads((data / "run.json").read_text())
        replayed = data / "replay.json"
        replay = json.loads(replayed.read_text()) if replayed.exists() else None
        begin, first = max(run["begun"].values()), min(run["begun"].values())
        moments = np.arange(begin + 1, first + run["duration_seconds"])
        rows = read_columns(data / "replicas.csv", ("time", "tenant", *COLUMNS))
        time = np.array(rows["time"], np.float64)
        values = np.array([rows[name] for name in COLUMNS], np.float64).T
        mine = {tenant.name: np.array(rows["tenant"]) == tenant.name for tenant in TENANTS}
        return Played(
            name=run["contender"],
            title=run["title"],
            slo_ms=run["slo_ms"],
            seconds=moments - first,
            replicas={name: Steps(time[where], values[where]).at(moments) for name, where in mine.items()},
            requests={
                tenant.name: read_requests(data / tenant.name / "requests.csv").between(moments[0] - 1, moments[-1])
                for tenant in TENANTS
            },
            replay=replay,
        )
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise RecordError(f"{folder}: not the records of a demo of tenants: {error}") from error


def figures(played: Played) -> Figures:
    """Give the figures of one contender."""
    each = {tenant.name: _of_tenant(played, tenant.name, tenant.guaranteed) for tenant in TENANTS}
    late = [_late(played, name) for name in each]
    held = sum(one.held for one in each.values())
    answered = sum(int(np.sum(requests.ok)) for requests in played.requests.values())
    return Figures(
        title=played.title,
        cost=round(held + LATE_WEIGHT * sum(one.late_percent for one in each.values()), 2),
        held_percent=round(100 * held / GPUS, 1),
        busy_percent=round(100 * answered / (held * REQUESTS_PER_SECOND * len(played.seconds)), 1),
        late_percent=round(100 * float(np.mean(np.concatenate(late))), 2),
        tenants=each,
        replay=played.replay,
    )


def _late(played: Played, tenant: str) -> Any:
    """Say which requests (n,) of a tenant failed or took longer than the objective."""
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


def write(found: list[Figures], out: Path) -> str:
    """Write `summary.json` and `table.md`; gives the table."""
    (out / "summary.json").write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    table = "\n".join([*_totals(found), "", *_by_tenant(found)])
    (out / "table.md").write_text(table + "\n")
    return table


def _totals(found: list[Figures]) -> list[str]:
    lines = [
        "| | J in total | GPUs held (%) | of these busy (%) | late, all requests (%) | late, worst tenant (%) "
        "| below guarantee, worst tenant (% of time) | pods that wait | replayed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        tenants = one.tenants.values()
        cells = [
            one.title,
            f"{one.cost:.1f}",
            f"{one.held_percent:.0f}",
            f"{one.busy_percent:.0f}",
            f"{one.late_percent:.1f}",
            f"{max(tenant.late_percent for tenant in tenants):.1f}",
            f"{max(tenant.below_guarantee_percent for tenant in tenants):.1f}",
            f"{sum(tenant.waiting for tenant in tenants):.1f}",
            _replayed(one),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _replayed(one: Figures) -> str:
    if one.replay is None:
        return "-"
    text = f"{one.replay['same']} of {one.replay['decisions']} decisions"
    shared = one.replay["sharings"]
    return text if not shared else f"{text}, {one.replay['sharingsSame']} of {shared} sharings"


def _by_tenant(found: list[Figures]) -> list[str]:
    titles = " | ".join(one.title for one in found)
    lines = [
        f"| tenant (guaranteed) | {titles} |",
        "|---|" + "---|" * len(found),
    ]
    for tenant in TENANTS:
        cells = [
            f"{mine.late_percent:.1f} % late, {mine.held:.1f} GPUs"
            for mine in (one.tenants[tenant.name] for one in found)
        ]
        lines.append(f"| {tenant.namespace}/{tenant.name} ({tenant.guaranteed}) | {' | '.join(cells)} |")
    return lines
