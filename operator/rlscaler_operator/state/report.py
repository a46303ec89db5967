"""The last report of a policy, and its pending writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlscaler_core.api import Condition
from rlscaler_core.api.status import DecisionStatus, LastDecision, ObservationStatus, SLOStatus
from rlscaler_core.decision.units import UnitName
from rlscaler_operator.cluster.events import Event
from rlscaler_operator.state.ownership import Claim


class Revisions(NamedTuple):
    """The versions of everything that a report about a policy is made from."""

    observed: int
    decision: int
    promotion: int
    rivals: list[Claim]
    """The claims of the other policies that act on its targets; a claim never changes, so it is a version of itself."""
    targets: tuple[tuple[int, int, int], ...]
    """Numbers of the watch cache for each target's Deployment and for the foreign autoscalers of replicas and pods."""
    route: str | None
    """resourceVersion of the HTTPRoute that the weights are written to; None where there is none."""


@dataclass(slots=True)
class ReportState:
    """The last report of one policy. `reporting/reporter.py` writes it; `reporting/publish.py` says when it failed."""

    conditions: list[Condition] = field(default_factory=list)
    history: list[DecisionStatus] = field(default_factory=list)
    """Decisions that changed something, newest first."""
    last: LastDecision | None = None
    observation: ObservationStatus | None = None
    reported_at: float = float("-inf")
    """Monotonic time of the last report."""
    forecaster: str | None = None
    """The forecaster's memory as in the status."""
    forecaster_at: float = float("-inf")
    """Unix time of `forecaster`."""
    forecaster_unit: UnitName | None = None
    """The unit of the load that it learned; None before the first report."""
    slo: SLOStatus | None = None
    """The rest of the error budget as in the status."""
    slo_at: float = float("-inf")
    """Unix time of `slo`."""
    seen: str | None = None
    """The pods' usage as in the status."""
    seen_at: float = float("-inf")
    """Unix time of `seen`."""
    made_from: Revisions | None = None
    """The versions of the last report's inputs, where everything that it wanted is in force; else None."""


class PendingReport(NamedTuple):
    """A status that is to be written, and Events that are to be posted before it."""

    status: dict[str, Any]
    events: list[Event]


@dataclass(slots=True)
class Outbox:
    """Pending and finished writes about one policy. `reporting/publish.py` writes it.

    The originals are written by `actuation`, ahead of the report: see `wrote_originals`. So is `newPods`, which is not
    kept here.
    """

    status: dict[str, Any] = field(default_factory=dict)
    """The status as last written."""
    written_at: float = float("-inf")
    """Monotonic time of the last status write."""
    pending: PendingReport | None = None
    writing: bool = False
    """Whether a write is under way."""
    lost: set[str] = field(default_factory=set)
    """Parts of `status` that another writer has emptied since: they are written again, whole."""

    def wrote_originals(self, originals: dict[str, Any]) -> None:
        self.status["originals"] = originals

    def watched(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """Note the parts of the status that the object had `before` and has lost `now`."""
        # By what the watch showed: a part that an older CRD prunes was never there, and would be written for ever.
        self.lost |= {name for name in before if before[name] and not now.get(name) and self.status.get(name)}

    def misses(self, status: Mapping[str, Any]) -> bool:
        """Return True where the object has lost a part that `status` has."""
        return not self.lost.isdisjoint(status)


@dataclass(slots=True)
class LateRequests:
    """State of counting late requests, for alerts and the error budget. `reporting/objectives.py` writes it."""

    asked_at: float | None = None
    """Monotonic time when they were last asked for."""
    carried: float = 0.0
    """Requests that were answered in time and had arrived in an earlier window; <= 0."""
    windows: list[tuple[float, float, int]] = field(default_factory=list)
    """Requests and late ones of each window counted since the last tick, and the latency in ms that they were for."""

    def forget(self) -> None:
        """Drop the counts of another latency."""
        self.carried = 0.0
        self.windows.clear()

    def take(self, latency_ms: int) -> tuple[float, float]:
        """Return requests and late ones since the last tick, and forget them; NaN without a count for `latency_ms`."""
        # Windows counted for another latency are no answer to the objective of now.
        counted = [(requests, late) for requests, late, latency in self.windows if latency == latency_ms]
        self.windows.clear()
        if not counted:
            return math.nan, math.nan
        return sum(requests for requests, _ in counted), sum(late for _, late in counted)
