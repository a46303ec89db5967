"""What `estimate` and `simulate` have in common: a recorded load, its service, and what each autoscaler costs there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict
from rich.table import Table

from rlscaler_core.api.offline import OfflinePolicy
from rlscaler_loadgen.traces import Trace
from rlscaler_rl.evaluation.days.contenders import Contender
from rlscaler_rl.evaluation.days.play import Bind, Days, prepared
from rlscaler_rl.evaluation.days.service_load import LEAST_SECONDS, ServiceLoad, own
from rlscaler_rl.evaluation.service_tuning.history import check_counter, check_unit, duration, read_history
from rlscaler_rl.evaluation.service_tuning.service import check_scrape, service_of
from rlscaler_rl.simulation.episode import Result
from rlscaler_rl.simulation.scenario import GPU_COST_PER_HOUR, NOMINAL
from rlscaler_rl.workloads import Part

DAYS = 3
"""Most days that are judged, the last ones: more would take longer than two minutes."""

HOURS_PER_MONTH = 730.0

ABSURD = 100.0
"""A bin this many times above what all but one in a thousand stay below is named: it may be no load."""

BUSY_SHARE = 0.45
"""Part of the example service's capacity that the busy hours of a history need where no policy is given."""


class Row(BaseModel):
    """What one autoscaler costs on the judged days."""

    model_config = ConfigDict(frozen=True)

    contender: str
    label: str
    gpu_hours_per_day: float
    cpu_hours_per_day: float
    cost_per_month: float
    """In the currency of `costPerHour`, for months like the judged days."""

    late_percent: float
    worst_day_late_percent: float


class Report(BaseModel):
    """What autoscalers cost on the judged days of a load."""

    model_config = ConfigDict(frozen=True)

    service: str
    rows: list[Row]
    """In the order in which they are shown; the first one stands out."""

    objective_percent: float
    """Share of the requests, in %, that may be late."""

    judged_days: float
    notes: list[str]
    picture: Path
    file: Path
    seconds: float

    def save(self) -> None:
        self.file.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    def table(self) -> Table:
        """The rows for a terminal."""
        made = Table(title=f"{self.service}: {self.judged_days:.3g} days judged", title_justify="left", box=None)
        made.add_column("autoscaler", no_wrap=True)
        for heading in ("GPU-hours a day", "CPU-hours a day", "cost a month", "late %", "worst day %"):
            made.add_column(heading, justify="right")
        for row in self.rows:
            made.add_row(
                row.label,
                f"{row.gpu_hours_per_day:.1f}",
                f"{row.cpu_hours_per_day:.1f}",
                f"{row.cost_per_month:,.0f}",
                f"{row.late_percent:.2f}",
                f"{row.worst_day_late_percent:.2f}",
                style="bold" if row is self.rows[0] else None,
            )
        return made


@dataclass(frozen=True, slots=True)
class PlayedService:
    """What the load is played on."""

    name: str
    columns: dict[str, Any]
    bind: Bind | None
    gpu_cost_per_hour: float
    late_allowed: float
    capacity: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """The days of a history that are judged, on the service that they are played on."""

    service: PlayedService
    load: ServiceLoad
    days: Days
    trace: Trace

    @property
    def length_days(self) -> float:
        return len(self.days.loads) * self.load.length / 86_400

    def past(self) -> Days:
        """The days before, on which contenders may be tuned."""
        chosen = [(self.load, number) for number in self.load.parts[Part.TUNE]]
        return prepared(chosen, bind=self.service.bind, **self.service.columns)

    def title(self, history: Path) -> str:
        """What the picture of the last day is called."""
        return f"{history.name}, the last {duration(self.load.length)}: requests/s, and what stood ready for them"

    def notes(self) -> list[str]:
        """What holds for every figure."""
        return [*self.service.notes, *remarks(self.trace, self.load)]


def judged(
    history: Path,
    policy: OfflinePolicy | None,
    scrape_seconds: int,
    progress: Callable[[str], None],
    tuned: bool = True,
) -> Judged:
    """Read a history and make its judged days ready to be played, with what went before.

    `progress` is told once all is read. Where nothing is `tuned` on what went before, a shorter history will do. Raises
    EvaluationError naming the file or the object, the field and the remedy.
    """
    check_scrape(scrape_seconds)
    trace = read_history(history)
    if policy is None:  # The service is as large as the load asks for, so that no unit looks wrong.
        check_counter(trace, str(history))
    service = _service(policy, scrape_seconds, trace)
    check_unit(trace, str(history), service.name, service.capacity)
    load = own(trace, history.stem, tuned)
    progress("the past of the judged days")
    chosen = [(load, number) for number in load.parts[Part.TEST][-DAYS:]]
    return Judged(service, load, prepared(chosen, bind=service.bind, **service.columns), trace)


def _service(policy: OfflinePolicy | None, scrape_seconds: int, trace: Trace) -> PlayedService:
    if policy is not None:
        offline = service_of(policy, scrape_seconds)
        assumed = tuple(f"assumed: {text}; set it or let the operator learn it" for text in offline.assumed)
        return PlayedService(
            f"{offline.namespace}/{offline.name}",
            offline.columns(),
            offline.bind,
            offline.gpu_cost_per_hour,
            100 - offline.objective,
            offline.capacity,
            assumed,
        )
    rps = np.array(NOMINAL["rps"])
    most = np.array(NOMINAL["max_replicas"])
    factor = float(trace.percentile(99)) / (BUSY_SHARE * float((rps * most).sum()))
    note = (
        f"no policy: the example service with replicas of the size that the load asks for ({rps[0] * factor:.3g} "
        f"requests/s a GPU replica, {rps[1] * factor:.3g} a CPU replica, at most {most[0]}+{most[1]}); "
        "name your own by --policy"
    )
    columns = {"rps": tuple(rps * factor), "slo_ms": NOMINAL["slo_ms"] / min(factor, 1.0)}
    return PlayedService(
        "example service", columns, None, GPU_COST_PER_HOUR, 1.0, factor * float((rps * most).sum()), (note,)
    )


def row_of(entry: Contender, result: Result, judged: Judged) -> Row:
    """What one autoscaler cost on the judged days."""
    gpu, cpu = (float(values.mean() / 3600) for values in (result.gpu_replica_seconds, result.cpu_replica_seconds))
    a_day = 86_400 / judged.load.length
    missed, all_of_them = result.requests - result.in_time, result.requests.sum()
    return Row(
        contender=entry.name,
        label=entry.label,
        gpu_hours_per_day=gpu * a_day,
        cpu_hours_per_day=cpu * a_day,
        cost_per_month=float(result.cost.mean()) * judged.service.gpu_cost_per_hour * HOURS_PER_MONTH,
        late_percent=float(100 * missed.sum() / max(all_of_them, 1.0)),
        worst_day_late_percent=float(result.late_percent.max()),
    )


def remarks(trace: Trace, load: ServiceLoad) -> list[str]:
    """Say what a history lacks, and what of it may be no load."""
    notes = [
        f"judged: the last {duration(len(load.parts[Part.TEST][-DAYS:]) * load.length)} of {duration(trace.length_s)}"
    ]
    if load.drawn:
        notes.append(f"bins of {trace.width_s:g} s: the seconds within are drawn, so short jumps are not the real ones")
    usual, highest = trace.percentile(99.9), float(trace.rate.max())
    if highest > ABSURD * usual > 0:
        at = duration(int(trace.width_s * int(trace.rate.argmax())))
        notes.append(
            f"{highest:,.0f} requests/s {at} after the begin are {highest / usual:,.0f} times what all but one bin in "
            "a thousand stay below, and may make most of the late requests; correct that bin if it was no load"
        )
    if not load.parts[Part.TUNE]:
        notes.append(
            f"a first look: {duration(trace.length_s)} are no past that the rule could have learned from, and the cost "
            f"of a month takes every hour for one of these; from {LEAST_SECONDS // 3600} h on the last 40 % are judged"
        )
    if load.length < 86_400:
        notes.append("less than three days of history: what other hours bring was not seen")
    return notes
