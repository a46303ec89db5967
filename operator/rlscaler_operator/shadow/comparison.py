"""One policy's comparison with the service that really runs: both sides, its days, and the model's calibration."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from rlscaler_core.api.promotion import EVIDENCE_DAYS, EvidenceDay, MeasuredDay, PromotionStatus
from rlscaler_core.decision.types import POOLS, Float, Params
from rlscaler_core.queueing.fluid import RELATIVE_BOUNDS, Meter, percentile_ms
from rlscaler_operator.shadow.basis import basis_of, former_basis, with_model
from rlscaler_operator.shadow.calibration import Histogram, tells_running
from rlscaler_operator.shadow.evidence import MEASURED_SHARE, late_agrees, p95_agrees, together
from rlscaler_operator.shadow.service_times import ServiceTimes, unknown_times
from rlscaler_operator.shadow.verdict import REMEDY, Requirements
from rlscaler_operator.state.policy import Policy

RECENT_WINDOWS = 6
"""Windows by whose majority the model counts as calibrated at the moment."""

MORE, LESS = 1.1, 1 / 1.03
"""Factors of the load that a replica carries in the model, after a window with more and with fewer late requests in the
model than measured. Too little is mended faster: a queue that is not there lasts for windows. Chosen on simulated
services (seed 31) and checked on others (32)."""

FADE = 1.01
"""Factor by which a load above the stated capacity falls back in a window in which the late requests agree."""

FEWEST_LEARNED = 100.0
"""Requests of a window from which on it teaches how much a replica carries."""

LEAST_FACTOR, MOST_FACTOR = 0.5, 3.0

SUMS = ("seconds", "requests", "virtual_cost", "real_cost", "virtual_late", "real_late")
"""Columns of a day's sums in the table."""


@dataclass(slots=True)
class Comparison:
    """A comparison, besides its row in the table."""

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
    """Today's measurements."""
    agreeing: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT_WINDOWS))
    slower: bool | None = None
    """Whether the model was slower than the service in the last window in which they differed; None = in none."""
    answered_since: float = 0.0
    """Surplus of answered over received requests: since today began, or since one without an answer counted as late."""
    mark: Meter | None = None
    """The real service's meter when the present window began."""
    times: ServiceTimes = field(default_factory=unknown_times)
    """The time for which each pool's replicas work on a request, for the model."""
    capacity_factor: float = 1.0
    """Load that a replica carries in the model over its stated capacity; learned where the objective is on the first
    token."""
    calibrate_at: float = float("inf")
    """Unix seconds when the window ends, and below when a verdict is due and when the day ends."""
    update_at: float = float("-inf")
    day_ends: float = float("-inf")
    begun: Float = field(default_factory=lambda: np.zeros(len(SUMS)))
    """Today's sums when the comparison was taken up."""

    def is_of(self, promotion: PromotionStatus) -> bool:
        """Return whether the status describes this comparison."""
        return promotion.basis == self.basis and (promotion.against == "HPAFormula") == self.acting

    @property
    def calibrated(self) -> bool:
        """Whether the model matched, percentile and late share, in most of the recent windows."""
        return len(self.agreeing) >= RECENT_WINDOWS // 2 and sum(self.agreeing) * 2 > len(self.agreeing)

    def remedy(self) -> str:
        """Return the remedy where the model does not match the measurements."""
        return remedy(self.policy, self.params, self.times, self.slower)

    def day(self, sums: Float) -> EvidenceDay:
        """Return today so far, from the table's sums (6,)."""
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
            capacity_factor=None if self.capacity_factor == 1 else round(self.capacity_factor, 4),
        )

    def resume(self, day: EvidenceDay) -> None:
        """Go on with a day that the status holds."""
        ours, other = (day.cost, day.late), (day.other_cost, day.other_late)
        real, virtual = (ours, other) if self.acting else (other, ours)
        self.measured = day.measured
        self.begun = np.array([day.hours * 3600, day.requests, virtual[0], real[0], virtual[1], real[1]])

    def close(self, sums: Float, today: str) -> None:
        """Close a day that is over. A comparison without a result in the longest time begins anew."""
        if self.today:
            self.days.append(self.day(sums))
        if len(self.days) >= EVIDENCE_DAYS:
            self.days = self.days[1:] if self.acting else []
        self.today, self.measured, self.answered_since = today, None, 0.0

    def calibrate(
        self, now: Meter, histogram: Histogram | None, slo_ms: float, times: ServiceTimes | None = None
    ) -> None:
        """Compare model and measurements of a window: `now` is the real service's meter (one row).

        `times` is the time of work on a request in it: the model uses it in later windows, and a window that it played
        without knowing does not count.
        """
        before, self.mark = self.mark, now
        late = None if histogram is None else histogram.late(slo_ms / 1000, self._unanswered(histogram))
        if self._learns(times) or before is None or histogram is None or late is None:
            return
        requests = float(now.requests[0] - before.requests[0])
        # A window that the model played only in part, as after a gap, cannot be compared.
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
        self.measured = window if self.measured is None else together([self.measured, window])
        late_alike = late_agrees(window)
        self.agreeing.append(agrees and late_alike)
        if self.policy.spec.slo.signal == "ttft" and self._is_timed() and histogram.answered >= FEWEST_LEARNED:
            self._learn_load(window, late_alike)

    def _learn_load(self, window: MeasuredDay, late_alike: bool) -> None:
        """Correct the load that a replica carries by the late requests of a window."""
        if late_alike:
            # The least load that explains the measurements: without late requests nothing else would lower it.
            self.capacity_factor = max(self.capacity_factor / FADE, min(self.capacity_factor, 1.0))
            return
        more = window.modelled_late * window.requests > window.late_at_most * window.modelled_requests
        self.capacity_factor = min(max(self.capacity_factor * (MORE if more else LESS), LEAST_FACTOR), MOST_FACTOR)

    def _is_timed(self) -> bool:
        """Return whether the time that the latency counts is known of each target."""
        present = [name is not None for name in self.policy.subject.deployments]
        return bool(np.isfinite(self.times.timed[present]).all())

    def _unanswered(self, histogram: Histogram) -> float:
        """Return the number of late requests among those without an answer in a window.

        A refused request stays without an answer. A request in flight is answered in a later window, with more answers
        than arrivals: it is not late a second time when others are in flight.
        """
        if not (histogram.within and math.isfinite(histogram.received)):
            return 0.0
        # Surplus answers of earlier windows belong to requests that came before.
        growth = histogram.received - histogram.answered - self.answered_since
        self.answered_since = max(0.0, -growth)
        return max(0.0, growth)

    def _learns(self, times: ServiceTimes | None) -> bool:
        """Take over the times of work; return whether a time was unknown of a pool before."""
        if times is None:
            return False
        before, self.times = self.times, ServiceTimes(*map(_joined, self.times, times))
        return any((np.isnan(old) & np.isfinite(new)).any() for old, new in zip(before, self.times, strict=True))


def _joined(known: Float, new: Float) -> Float:
    """Return the mean (2,) of known and new times; where one of them is NaN, the other."""
    # Half and half: one window's times are noisy, and a new release shows after a few.
    mean = np.where(np.isfinite(known), (known + new) / 2, new)
    return np.where(np.isfinite(new), mean, known)


def requirements_of(policy: Policy) -> Requirements:
    """Return the requirements of a policy's spec and its actor."""
    spec = policy.spec
    required = spec.mode, spec.promotion.require, spec.promotion.min_days, spec.slo.objective
    written, basis = policy.promotion.status, basis_of(policy)
    before = written.basis if written is not None else None
    former = None
    if before is not None and policy.decision.actor is None:
        # A model that cannot be read at the moment is no other model.
        basis = with_model(basis, before) if ":" in before else before
    elif before is not None and before == former_basis(policy):
        # An earlier release collected the evidence: an upgrade is no edit.
        former = before
    return Requirements(*required, basis, former)


def resumed(policy: Policy, acting: bool, stack: int, now: float) -> Comparison:
    """Return a new comparison, with the days of the same comparison in the status."""
    written = policy.promotion.status
    comparison = Comparison(policy, requirements_of(policy).basis, acting, stack, today=date_of(now))
    if written is not None and comparison.is_of(written):
        comparison.days = [day for day in written.evidence if day.date < comparison.today]
        for day in written.evidence:
            if day.date <= comparison.today:
                comparison.capacity_factor = min(max(day.capacity_factor or 1.0, LEAST_FACTOR), MOST_FACTOR)
            if day.date == comparison.today:
                comparison.resume(day)
    return comparison


def date_of(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).date().isoformat()


LEAST_AT_ONCE = 0.5
"""Requests in work at a replica at a time below which its stated capacity counts as wrong."""


def remedy(policy: Policy, params: Params | None, times: ServiceTimes, slower: bool | None) -> str:
    """Return the remedy for the first known mistake, else for the usual cause.

    `params` (one row) has the capacity of a replica, `times` its time of work on a request, and `slower` says whether
    the model was slower than the service where they differed last; each None or NaN where unknown.
    """
    if policy.spec.slo.signal == "tpot" or (policy.spec.slo.signal == "ttft" and not tells_running(policy.subject)):
        return (
            f"the model has no {policy.spec.slo.signal} of this server: where it stays like this, "
            "spec.promotion.require: None lets the policy act without evidence"
        )
    if policy.spec.slo.signal == "ttft":
        return (
            "the model learns from the windows how much a replica carries: wait for a day; where it stays like this, "
            "no capacity explains the late requests: spec.promotion.require: None lets the policy act without evidence"
        )
    if params is not None and policy.spec.capacity.unit == "requests":
        for number, pool in enumerate(POOLS):
            seconds, carries = float(times.seconds[number]), float(params.requests_per_second[0, number])
            if seconds * carries < LEAST_AT_ONCE:
                return (
                    f"a replica works on a request for {1000 * seconds:.3g} ms, so even one at a time it carries "
                    f"{1 / seconds:.3g} requests/s, and not {carries:.3g}: set "
                    f"spec.{policy.spec.per_replica_field(pool)} to what it carries under full load"
                )
    if slower is None:
        return REMEDY
    if slower:
        return f"the model is slower than the service, as if a replica carried more than it is said to: {REMEDY}"
    if not tells_running(policy.subject) and np.isnan(times.seconds).all():
        return (
            "the model is faster than the service, and works on one request at a time, since no series tells what runs "
            f"from what waits: where replicas work on several, name the server in spec.metrics.preset; else {REMEDY}"
        )
    return f"the model is faster than the service, as if a replica carried less than it is said to: {REMEDY}"
