"""One policy's comparison with what really runs: what it compares, its days, and the calibration of the model."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from rlscaler_core.api.promotion import EVIDENCE_DAYS, EvidenceDay, MeasuredDay, PromotionStatus
from rlscaler_core.decision.types import Float, Params
from rlscaler_core.queueing.fluid import RELATIVE_BOUNDS, Meter, percentile_ms
from rlscaler_operator.records.record import describe
from rlscaler_operator.shadow.calibration import Histogram
from rlscaler_operator.shadow.evidence import MEASURED_SHARE, late_agrees, p95_agrees
from rlscaler_operator.shadow.remedy import remedy
from rlscaler_operator.shadow.service_times import ServiceTimes, unknown_times
from rlscaler_operator.shadow.verdict import Requirements
from rlscaler_operator.state.policy import Policy

RECENT_WINDOWS = 6
"""Windows by whose majority the model counts as calibrated at the moment."""

SUMS = ("seconds", "requests", "virtual_cost", "real_cost", "virtual_late", "real_late")
"""Columns of a day's sums in the table."""


@dataclass(slots=True)
class Comparison:
    """What is known of a comparison besides its row in the table."""

    policy: Policy
    """The policy as it ran when the comparison began; another object (after a change of leader) begins a new one."""
    basis: str
    acting: bool
    """The real service follows the policy, and the virtual one the HPA formula; else the other way round."""
    stack: int
    row: int = -1
    params: Params | None = None
    days: list[EvidenceDay] = field(default_factory=list)
    """The days that are over."""
    today: str = ""
    measured: MeasuredDay | None = None
    """What was measured today."""
    agreeing: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT_WINDOWS))
    slower: bool | None = None
    """Whether the model was slower than the service in the last window in which they differed; None = in none."""
    answered_since: float = 0.0
    """By how many more requests were answered than came: since today began, or since one without an answer counted as
    late."""
    mark: Meter | None = None
    """The real service's meter when the present window began."""
    times: ServiceTimes = field(default_factory=unknown_times)
    """How long each pool's replicas work on a request, for the model."""
    calibrate_at: float = float("inf")
    """Unix seconds when the window ends, and below when a verdict is due and when the day ends."""
    update_at: float = float("-inf")
    day_ends: float = float("-inf")
    begun: Float = field(default_factory=lambda: np.zeros(len(SUMS)))
    """Today's sums when the comparison was taken up."""

    def is_of(self, promotion: PromotionStatus) -> bool:
        """Does the status describe this comparison?"""
        return promotion.basis == self.basis and (promotion.against == "HPAFormula") == self.acting

    @property
    def calibrated(self) -> bool:
        """Did the model match, percentile and late share, in most of the recent windows?"""
        return len(self.agreeing) >= RECENT_WINDOWS // 2 and sum(self.agreeing) * 2 > len(self.agreeing)

    def remedy(self) -> str:
        """What to do where the model does not match what was measured."""
        return remedy(self.policy, self.params, self.times, self.slower)

    def day(self, sums: Float) -> EvidenceDay:
        """Today so far, from the table's sums (6,)."""
        value = dict(zip(SUMS, (max(0.0, float(v)) for v in sums), strict=True))
        ours, other = ("real", "virtual") if self.acting else ("virtual", "real")
        return EvidenceDay(
            date=self.today,
            hours=round(value["seconds"] / 3600, 3),
            requests=round(value["requests"], 1),
            cost=round(value[f"{ours}_cost"], 4),
            other_cost=round(value[f"{other}_cost"], 4),
            late=round(value[f"{ours}_late"], 2),
            other_late=round(value[f"{other}_late"], 2),
            measured=self.measured,
        )

    def resume(self, day: EvidenceDay) -> None:
        """Go on with a day that the status holds."""
        ours, other = (day.cost, day.late), (day.other_cost, day.other_late)
        real, virtual = (ours, other) if self.acting else (other, ours)
        self.measured = day.measured
        self.begun = np.array([day.hours * 3600, day.requests, virtual[0], real[0], virtual[1], real[1]])

    def close(self, sums: Float, today: str) -> None:
        """A day is over. A comparison that has found nothing in the longest time begins anew."""
        if self.today:
            self.days.append(self.day(sums))
        if len(self.days) >= EVIDENCE_DAYS:
            self.days = self.days[1:] if self.acting else []
        self.today, self.measured, self.answered_since = today, None, 0.0

    def calibrate(
        self, now: Meter, histogram: Histogram | None, slo_ms: float, times: ServiceTimes | None = None
    ) -> None:
        """A window is over: `now` is the real service's meter (one row), `histogram` what was measured.

        `times` is how long requests were worked on in it: the model is told for the windows to come, and a window that
        it played without knowing says nothing of it.
        """
        before, self.mark = self.mark, now
        late = None if histogram is None else histogram.late(slo_ms / 1000, self._unanswered(histogram))
        if self._learns(times) or before is None or histogram is None or late is None:
            return
        requests = float(now.requests[0] - before.requests[0])
        if requests <= 0 or histogram.received <= 0 or requests < MEASURED_SHARE * histogram.received:
            return
        modelled = float(now.late[0] - before.late[0])
        bucket = histogram.p95_bucket_ms()
        p95 = float(percentile_ms(now.answered - before.answered, np.array([slo_ms]), 95.0)[0])
        agrees = bucket is not None and p95_agrees(p95, *bucket, slo_ms * float(RELATIVE_BOUNDS[0]))
        if bucket is not None and not agrees:
            self.slower = p95 > bucket[1]
        window = MeasuredDay(
            requests=round(histogram.received, 1),
            late=round(late[0], 2),
            late_at_most=round(late[1], 2),
            modelled_requests=round(requests, 1),
            modelled_late=round(max(0.0, modelled), 2),
            windows=1,
            agreeing=int(agrees),
        )
        self.measured = window if self.measured is None else _added(self.measured, window)
        self.agreeing.append(agrees and late_agrees(window))

    def _unanswered(self, histogram: Histogram) -> float:
        """Of the requests that came in a window and have no answer, those that count as late.

        One that is refused stays without an answer. One in flight has it in a later window, in which more are answered
        than come: those are not late a second time when others are in flight.
        """
        if not (histogram.within and math.isfinite(histogram.received)):
            return 0.0
        growth = histogram.received - histogram.answered - self.answered_since
        self.answered_since = max(0.0, -growth)
        return max(0.0, growth)

    def _learns(self, times: ServiceTimes | None) -> bool:
        """Take over how long requests are worked on; True where something was not known of a pool before."""
        if times is None:
            return False
        before, self.times = self.times, ServiceTimes(*map(_joined, self.times, times))
        return any((np.isnan(old) & np.isfinite(new)).any() for old, new in zip(before, self.times, strict=True))


def _joined(known: Float, new: Float) -> Float:
    """Half of what was known and half of what is new, (2,); where one of them is NaN, the other."""
    mean = np.where(np.isfinite(known), (known + new) / 2, new)
    return np.where(np.isfinite(new), mean, known)


def _added(day: MeasuredDay, window: MeasuredDay) -> MeasuredDay:
    names = MeasuredDay.model_fields
    return MeasuredDay(**{name: round(getattr(day, name) + getattr(window, name), 2) for name in names})


def requirements_of(policy: Policy) -> Requirements:
    """What a policy's spec and its actor ask for."""
    spec = policy.spec
    named = (*describe(policy.decision.actor).values(), *map(str, policy.deployments), policy.subject.service)
    otherwise = [name for name in (spec.capacity.unit, spec.slo.signal) if name not in ("requests", "endToEnd")]
    text = "\n".join((*named, str(spec.slo.latency_milliseconds), *otherwise))
    basis = hashlib.sha256(text.encode()).hexdigest()[:16]
    if (
        policy.decision.actor is None
        and policy.promotion.status is not None
        and policy.promotion.status.basis is not None
    ):
        # A model that cannot be read at the moment is no other model.
        basis = policy.promotion.status.basis
    return Requirements(spec.mode, spec.promotion.require, spec.promotion.min_days, spec.slo.objective, basis)


def resumed(policy: Policy, acting: bool, stack: int, now: float) -> Comparison:
    """A new comparison, with the days that the status holds of the same comparison."""
    written = policy.promotion.status
    comparison = Comparison(policy, requirements_of(policy).basis, acting, stack, today=date_of(now))
    if written is not None and comparison.is_of(written):
        comparison.days = [day for day in written.evidence if day.date < comparison.today]
        for day in written.evidence:
            if day.date == comparison.today:
                comparison.resume(day)
    return comparison


def date_of(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).date().isoformat()
