"""Whether a policy may act follows from days of evidence. Pure; the caller passes the time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from rlscaler_core.api.promotion import EvidenceDay, MeasuredDay, PromotionStatus
from rlscaler_operator.shadow.basis import edited
from rlscaler_operator.shadow.evidence import (
    COST_RESOLUTION,
    FEWEST_DAYS,
    LATE_RESOLUTION,
    Compared,
    agrees,
    compare,
    cost_regret,
    counting,
    is_calibrated,
    late_agrees,
    late_regret,
    to_regret,
    together,
    turned_above,
)

COST_MARGIN_PERCENT = 2.0
"""Percentage by which a policy may cost more and still count as not dearer."""

LATE_MARGIN_OF_BUDGET = 0.1
"""Share of the error budget (100 - `slo.objective`) by which more requests may be late and still count as not later."""

DAYS_BETWEEN_FALSE_ALARMS = 10_000.0

LEAST_REQUESTS = 1000.0
"""Requests that the days which count must have compared together, and whose latency must have been measured: a service
without any shows nothing but idle cost, and one without latencies nothing about its model."""

HISTOGRAM = "see inference_request_duration_seconds_bucket"

EARLY_WINDOWS = 6
"""After so many windows of a day, an hour, it is said that the model is not calibrated."""

REMEDY = "correct what a replica carries, in targets.*.requestsPerSecond or capacity.perReplica"

PromotionStage = Literal["NotRequired", "Collecting", "Ready", "Promoted", "Demoted"]

ACTING = ("NotRequired", "Promoted")
"""States in which the actor's decisions are written."""


class Requirements(NamedTuple):
    """Requirements of the spec, and the basis that the evidence must have."""

    mode: str
    require: str
    min_days: int
    objective: float
    basis: str
    former: str | None = None
    """The same basis as an earlier release wrote it; None = the status has none of these."""


class Finding(NamedTuple):
    """Whether a claim was shown, and why (not)."""

    shown: bool
    reason: str
    message: str


def writes(mode: str, promotion: PromotionStatus | None) -> bool:
    """Return whether decisions are written: the actor's, or after a demotion those of the HPA formula."""
    return mode == "Auto" and promotion is not None and promotion.state in (*ACTING, "Demoted")


def demoted(mode: str, promotion: PromotionStatus | None) -> bool:
    """Return whether the HPA formula decides in the actor's place."""
    return mode == "Auto" and promotion is not None and promotion.state == "Demoted"


def better(days: Sequence[EvidenceDay], today: str, required: Requirements, remedy: str = REMEDY) -> Finding:
    """Return whether the policy is measurably cheaper and not later, or less late and not dearer, than the real
    service.

    `remedy` is the remedy where the model does not match.
    """
    compared = compare(counting(days, today))
    if compared.days < required.min_days:
        if doubtful := uncalibrated(days, today, remedy):
            return Finding(False, "ModelUncalibrated", doubtful)
        text = f"{compared.days} of promotion.minDays = {required.min_days} days count so far"
        text = f"{text}: a day counts once it is over, whole and calibrated"
        return Finding(False, "CollectingEvidence", text + _so_far(days, today, remedy))
    if finding := _too_little(counting(days, today), remedy):
        return finding
    margin = late_margin(required.objective)
    figures = describe(compared)
    if compared.cost.high < 0 and compared.late.high <= margin:
        return Finding(True, "Cheaper", f"measurably cheaper and not later: {figures}")
    if compared.late.high < 0 and compared.cost.high <= COST_MARGIN_PERCENT:
        return Finding(True, "LessLate", f"measurably less late and not dearer: {figures}")
    if doubtful := uncalibrated(days, today, remedy):
        return Finding(False, "ModelUncalibrated", doubtful)
    return Finding(False, "NotBetter", f"not measurably better than what runs: {figures}")


def _too_little(counted: Sequence[EvidenceDay], remedy: str) -> Finding | None:
    """Return why days that count are too little for a verdict: their requests, or the measurements of these."""
    requests = sum(day.requests for day in counted)
    if requests < LEAST_REQUESTS:
        text = f"{requests:.0f} requests were compared on {len(counted)} days, and a verdict needs {LEAST_REQUESTS:.0f}"
        return Finding(False, "TooFewRequests", f"{text}; promotion.require: None acts without evidence")
    measured = together([day.measured for day in counted if day.measured is not None])
    if measured.requests < LEAST_REQUESTS:
        text = f"of {requests:.0f} compared requests the latency of {measured.requests:.0f} was measured"
        return Finding(False, "ModelUncalibrated", f"{text}, and a verdict needs {LEAST_REQUESTS:.0f}: {HISTOGRAM}")
    if not late_agrees(measured):
        text = f"on {len(counted)} days the model does not match what was measured ({_figures(measured)})"
        return Finding(False, "ModelUncalibrated", f"{text}: {remedy}")
    return None


def worse(counted: Sequence[EvidenceDay], objective: float) -> Finding:
    """Return whether the acting policy has become measurably worse than the HPA formula would have been."""
    if not counted:
        return Finding(False, "", "")
    late, cost = [late_regret(day) for day in counted], [cost_regret(day) for day in counted]
    margin = late_margin(objective)
    if turned_above(late, margin, DAYS_BETWEEN_FALSE_ALARMS, LATE_RESOLUTION):
        text = f"more requests are late than the HPA formula would have left late: {_lately(late)} percentage points"
        return Finding(True, "LaterThanHPA", text)
    lately = late[-FEWEST_DAYS:]
    # Dearer is no reason to demote a policy that is measurably less late in turn.
    dearer = turned_above(cost, COST_MARGIN_PERCENT, DAYS_BETWEEN_FALSE_ALARMS, COST_RESOLUTION)
    if dearer and sum(lately) / len(lately) > -margin:
        text = f"replicas cost {_lately(cost)} % more than the HPA formula's would, with no fewer late requests"
        return Finding(True, "DearerThanHPA", text)
    return Finding(False, "", "")


def uncalibrated(days: Sequence[EvidenceDay], today: str, remedy: str = REMEDY) -> str:
    """Return why the newest day does not count as the model does not match the measurements; empty = it counts."""
    newest = [day for day in days if day.date < today or (day.measured and day.measured.windows >= EARLY_WINDOWS)]
    if not newest or is_calibrated(newest[-1]):
        return ""
    day = newest[-1]
    if day.measured is None or not day.measured.windows:
        return f"{day.date}: no latency histogram to compare the model with; {HISTOGRAM}"
    return f"{day.date}: the model does not match what was measured ({_figures(day.measured)}): {remedy}"


def _so_far(days: Sequence[EvidenceDay], today: str, remedy: str) -> str:
    """Return the calibration of today's first windows; empty before the first one is over."""
    day = next((day for day in days if day.date == today), None)
    if day is None or day.measured is None or not day.measured.windows:
        return ""
    figures, matches = _figures(day.measured), agrees(day.measured)
    verdict = f"matches what was measured ({figures})" if matches else f"does not match ({figures}): {remedy}"
    return f". Today {day.hours:.1f} h are compared so far, and the model {verdict}"


def _figures(measured: MeasuredDay) -> str:
    """Return late requests by the model and as measured, and the number of windows with a matching percentile."""
    low, high = (100 * late / max(measured.requests, 1.0) for late in (measured.late, measured.late_at_most))
    modelled = 100 * measured.modelled_late / max(measured.modelled_requests, 1.0)
    shares = f"{modelled:.2f} % late against {low:.2f} to {high:.2f} %"
    return f"{shares}, p95 alike in {measured.agreeing} of {measured.windows} windows"


def late_margin(objective: float) -> float:
    """Return the margin in percentage points of late requests."""
    return LATE_MARGIN_OF_BUDGET * (100 - objective)


def describe(compared: Compared) -> str:
    cost, late = compared.cost, compared.late
    return (
        f"cost {cost.mean:+.1f} % ({cost.low:+.1f} to {cost.high:+.1f}), late requests {late.mean:+.2f} percentage "
        f"points ({late.low:+.2f} to {late.high:+.2f}) over {compared.days} days"
    )


def next_promotion(
    before: PromotionStatus | None,
    required: Requirements,
    days: Sequence[EvidenceDay],
    now: datetime,
    burning: str = "",
    remedy: str = REMEDY,
) -> PromotionStatus:
    """Return the promotion status that follows from `before`, the spec, and the evidence collected in that state.

    `burning` says why a policy that acts must not wait for whole days, and `remedy` is the remedy where the model does
    not match. A policy that has acted once is never left without a driver: where it may act no longer, it is `Demoted`.
    """
    today = now.date().isoformat()
    same = before is not None and before.basis in (required.basis, required.former)
    of_running, of_acting = (
        [*days] if same and before is not None and before.against == side else [] for side in ("Running", "HPAFormula")
    )
    finding_on_running = better(of_running, today, required, remedy)
    if before is not None and finding_on_running.reason == "CollectingEvidence":
        finding_on_running = _anew(before, same, required, counting(of_running, today)) or finding_on_running
    state, finding = _next(before, same, required, finding_on_running, counting(of_acting, today), burning)
    against: Literal["Running", "HPAFormula"] = "Running"
    if required.mode == "Auto" and state in ACTING:
        against = "HPAFormula"
    looked_at = counting(of_acting or of_running, today)
    stays = before is not None and before.state == state
    return PromotionStatus(
        state=state,
        since=before.since if stays and before is not None else now.replace(microsecond=0),
        days=len(looked_at),
        reason=finding.reason or None,
        message=finding.message or None,
        against=against,
        regret=to_regret(compare(looked_at)),
        basis=required.basis,
        evidence=of_acting if against == "HPAFormula" else of_running,
    )


def _anew(
    before: PromotionStatus, same: bool, required: Requirements, counted: Sequence[EvidenceDay]
) -> Finding | None:
    """Return that an edit has begun the evidence anew, until a day counts again; None where none has."""
    if same:
        stays = before.reason == "BasisChanged" and not counted
        return Finding(False, "BasisChanged", before.message or "") if stays else None
    if not (before.evidence or before.reason == "BasisChanged" or before.state in (*ACTING, "Demoted", "Ready")):
        return None
    parts = ", ".join(edited(before.basis or "", required.basis))
    text = f"{parts} changed, which decisions follow: the evidence from before begins anew"
    return Finding(False, "BasisChanged", f"{text}; {required.min_days} days have to count (promotion.minDays)")


def _next(
    before: PromotionStatus | None,
    same: bool,
    required: Requirements,
    evidence: Finding,
    acted: Sequence[EvidenceDay],
    burning: str,
) -> tuple[PromotionStage, Finding]:
    if required.mode != "Auto":
        return ("Ready" if evidence.shown else "Collecting"), evidence
    was = before.state if before is not None else None
    if was in ACTING and same and (was == "Promoted" or required.require == "None"):
        bad = Finding(True, "BurningErrorBudget", burning) if burning else worse(acted, required.objective)
        if bad.shown:
            return "Demoted", bad
        return ("NotRequired" if required.require == "None" else "Promoted"), Finding(False, "Acting", _acting(acted))
    if required.require == "None":
        if was == "Demoted" and same and before is not None:
            return "Demoted", Finding(False, before.reason or "", before.message or "")
        return "NotRequired", Finding(False, "Acting", "acts without evidence: promotion.require is None")
    if was in (*ACTING, "Demoted"):
        return ("Promoted" if was == "Demoted" and evidence.shown else "Demoted"), evidence
    return ("Promoted" if evidence.shown else "Collecting"), evidence


def _acting(acted: Sequence[EvidenceDay]) -> str:
    return f"against the HPA formula: {describe(compare(acted))}" if len(acted) >= FEWEST_DAYS else ""


def _lately(regrets: Sequence[float]) -> str:
    recent = regrets[-FEWEST_DAYS:]
    return f"{sum(recent) / len(recent):+.2f}"
