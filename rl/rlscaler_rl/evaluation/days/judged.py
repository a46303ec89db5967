"""A recorded load of one's own on its service: its judged days, and the gaps behind the figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from rlscaler_core.api.offline import OfflinePolicy
from rlscaler_loadgen.traces import Trace
from rlscaler_rl.evaluation.days.play import Bind, Days, prepared
from rlscaler_rl.evaluation.days.service_load import LEAST_SECONDS, ServiceLoad, own
from rlscaler_rl.evaluation.service_tuning.history import check_counter, check_unit, duration
from rlscaler_rl.evaluation.service_tuning.service import check_scrape, service_of
from rlscaler_rl.simulation.scenario import GPU_COST_PER_HOUR, NOMINAL, start_seconds
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.recording import read_load

ABSURD = 100.0
"""A bin this many times above the rate of all but one bin in a thousand is named: it may be no load."""

BUSY_SHARE = 0.45
"""Part of the example service's capacity that the busy hours of a history need where no policy is given."""


@dataclass(frozen=True, slots=True)
class History:
    """Where a load comes from, and how much of it is judged."""

    path: Path
    series: str | None = None
    """Name of one series of a file that holds several."""

    days: int | None = None
    """Most days that are judged, the last ones; None: all days after the past."""

    scrape_seconds: int = 15


@dataclass(frozen=True, slots=True)
class PlayedService:
    """The service that a load is played on."""

    name: str
    columns: dict[str, Any]
    bind: Bind | None
    gpu_cost_per_hour: float
    late_allowed: float
    """% of the requests that may be late."""

    capacity: float
    """Requests/s of all replicas."""

    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """The judged days of a history, on the service that they are played on."""

    service: PlayedService
    load: ServiceLoad
    days: Days
    trace: Trace
    history: History

    @property
    def length_days(self) -> float:
        return len(self.days.loads) * self.load.length / 86_400

    def past(self) -> Days:
        """Return the last day before the judged ones, on which contenders may be tuned."""
        chosen = [(self.load, number) for number in self.load.parts[Part.TUNE]]
        return prepared(chosen, bind=self.service.bind, **self.service.columns)

    def title(self) -> str:
        """Return the title of the picture of the last day."""
        length = duration(self.load.length)
        return f"{self.history.path.name}, the last {length}: requests/s, and the capacity that was ready"

    def notes(self) -> list[str]:
        """Return the assumptions and gaps behind every figure."""
        figures = (
            "J: GPU replicas plus half a replica for each % late; a start costs startCostSeconds of its price "
            "beside its pod; the hindsight rule knows the load to come"
        )
        return [figures, *self.service.notes, *remarks(self.trace, self.load, len(self.days.loads))]


def judged(
    history: History, policy: OfflinePolicy | None, progress: Callable[[str], None], tuned: bool = True
) -> Judged:
    """Read a history and make its judged days ready to be played, each with the days before it.

    :param policy: the service; None: an example service as large as the load needs.
    :param progress: called once everything is read.
    :param tuned: whether contenders are tuned on the past, which takes a longer history.
    :raises EvaluationError: naming the file or the object, the field and the remedy.
    """
    check_scrape(history.scrape_seconds)
    trace, path = read_load(history.path, history.series), history.path
    if policy is None:  # The example service grows with the load, so that no unit looks wrong on it.
        check_counter(trace, str(path))
        service = _example(trace)
    else:
        service = _service(policy, history.scrape_seconds)
    check_unit(trace, str(path), service.name, service.capacity)
    load = own(trace, path.stem, tuned)
    progress("the past of the judged days")
    chosen = [(load, number) for number in load.parts[Part.TEST][-(history.days or 0) :]]
    return Judged(service, load, prepared(chosen, bind=service.bind, **service.columns), trace, history)


def _service(policy: OfflinePolicy, scrape_seconds: int) -> PlayedService:
    service = service_of(policy, scrape_seconds)
    return PlayedService(
        name=f"{service.namespace}/{service.name}",
        columns=service.columns(),
        bind=service.bind,
        gpu_cost_per_hour=service.gpu_cost_per_hour,
        late_allowed=100 - service.objective,
        capacity=service.capacity,
        notes=tuple(f"assumed: {text}; set it or let the operator learn it" for text in service.assumed),
    )


def _example(trace: Trace) -> PlayedService:
    """Return the example service with replicas of the size at which the load's busy hours need `BUSY_SHARE` of it."""
    rps, most = np.array(NOMINAL["rps"]), np.array(NOMINAL["max_replicas"])
    factor = float(trace.percentile(99)) / (BUSY_SHARE * float((rps * most).sum()))
    note = (
        f"no policy: the example service with replicas of the size that the load needs ({rps[0] * factor:.3g} "
        f"requests/s a GPU replica, {rps[1] * factor:.3g} a CPU replica, at most {most[0]}+{most[1]}); "
        "name your own by --policy"
    )
    # A slower replica takes longer for a request, so the objective's latency grows as the replica's rate shrinks.
    columns = {
        "rps": tuple(rps * factor),
        "slo_ms": NOMINAL["slo_ms"] / min(factor, 1.0),
        "start_seconds": start_seconds(np.add(NOMINAL["cold_start_low"], NOMINAL["cold_start_high"]) / 2),
    }
    capacity = factor * float((rps * most).sum())
    return PlayedService("example service", columns, None, GPU_COST_PER_HOUR, 1.0, capacity, (note,))


def remarks(trace: Trace, load: ServiceLoad, days: int | None = None) -> list[str]:
    """Return notes on the judged share of a history, its gaps, and a bin that may be no load."""
    count = len(load.parts[Part.TEST]) if days is None else days
    notes = [f"judged: the last {duration(count * load.length)} of {duration(trace.length_s)}"]
    if trace.begin is None:
        notes.append("the times have no date: the load is taken to begin on a Monday at 00:00 UTC")
    else:
        notes.append(f"the load begins on {datetime.fromtimestamp(trace.begin, UTC):%A, %Y-%m-%d %H:%M} UTC")
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
            f"of a month assumes that all hours are like these; from {LEAST_SECONDS // 3600} h on the last 40 % count"
        )
    if load.length < 86_400:
        notes.append("less than three days of history: other hours of the day were not seen")
    return notes
