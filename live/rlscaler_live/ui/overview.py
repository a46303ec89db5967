"""Rows of the page of all policies, from their JSON objects. Pure; a malformed object becomes a row that says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from rlscaler_core.api.spec import Promotion
from rlscaler_core.api.targets import GPUTarget
from rlscaler_operator.cli.pages import POOLS, condition, mode_of, state_of, troubles
from rlscaler_operator.cli.terminal import UNKNOWN

Body = Mapping[str, Any]
Tone = Literal["good", "quiet", "warn", "bad"]

ROWS = 100
"""Policies on one page."""

WORDS: Mapping[str, tuple[str, Tone]] = {
    "Unseen": ("not seen", "warn"),
    "Ready": ("broken", "bad"),
    "Conflicted": ("blocked", "bad"),
    "Fallback": ("fallback", "bad"),
    "Paused": ("paused", "warn"),
    "CapacityUnknown": ("learning", "warn"),
    "ModelOutdated": ("old model", "warn"),
}
"""State in a word and its tone, by the type of the condition that needs attention, the most important first."""

STAGES: Mapping[str, tuple[str, Tone]] = {"Demoted": ("demoted", "bad"), "Ready": ("proven", "good")}
"""The same by the state of the promotion, where no condition needs attention."""

SORTS = ("name", "state", "saved", "late")

OTHER_SIDES = {"Running": "the autoscaler you have", "HPAFormula": "the HPA formula"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Costs and late requests of a policy beside the other side's, over a day or more."""

    saved_percent: float
    """Part of the other side's cost that was saved; negative: the policy cost more."""
    saved_hours: float | None
    """The same as hours of one GPU replica; None where the policy has no GPU pool."""
    late_percent: float | None
    """None while no request arrived."""
    other_late_percent: float | None
    when: str
    beside: str

    @property
    def cost(self) -> str:
        """Cost in words, such as `14 % saved`."""
        return f"{abs(self.saved_percent):.0f} % {'dearer' if round(self.saved_percent) < 0 else 'saved'}"

    @property
    def hours(self) -> str:
        """The same in hours of one GPU replica; empty where the policy has no GPU pool."""
        if self.saved_hours is None:
            return ""
        return f"{abs(self.saved_hours):.1f} GPU-hours{' more' if round(self.saved_hours, 1) < 0 else ''}"


@dataclass(frozen=True, slots=True)
class Row:
    """One policy in the table."""

    namespace: str
    name: str
    service: str
    mode: str
    word: str
    tone: Tone
    replicas: Mapping[str, str]
    """`now → wanted` by pool."""
    comparison: Comparison | None
    reason: str
    message: str

    @property
    def attention(self) -> bool:
        return self.tone in ("warn", "bad")


@dataclass(frozen=True, slots=True)
class Overview:
    """One page of the table."""

    rows: Sequence[Row]
    matching: int
    total: int
    attention: int
    page: int
    pages: int


def row_of(body: Body, now: datetime | None = None) -> Row:
    """Return the row of a policy; for an object that cannot be read one that says so."""
    metadata = body["metadata"]
    try:
        word, tone, reason, message = state_in_a_word(body)
        return Row(
            namespace=metadata.get("namespace", ""),
            name=metadata["name"],
            service=service_of(body),
            mode=mode_of(body),
            word=word,
            tone=tone,
            replicas={pool: moves for pool in POOLS if (moves := _moves(body, pool))},
            comparison=comparison_of(body, now),
            reason=reason,
            message=message,
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        text = f"this object cannot be shown ({type(error).__name__}: {error}): see `kubectl get rlsp -o yaml`"
        return Row(
            str(metadata.get("namespace", "")), str(metadata["name"]), "", "", "unreadable", "bad", {}, None,
            "Unreadable", text,
        )  # fmt: skip


def state_in_a_word(body: Body) -> tuple[str, Tone, str, str]:
    """Return a word for the state, its tone, and the reason and message behind it."""
    if mode_of(body) == "Off":
        return "off", "quiet", "", ""
    wrong = {type_: (reason, message) for type_, reason, message in troubles(body)}
    for type_, (word, tone) in WORDS.items():
        if type_ in wrong:
            return word, tone, *wrong[type_]
    status = body.get("status") or {}
    promotion = status.get("promotion") or {}
    reasons = ", ".join((status.get("lastDecision") or {}).get("reasons") or ())
    if staged := STAGES.get(str(promotion.get("state"))):
        return *staged, str(promotion.get("reason") or ""), str(promotion.get("message") or "")
    if condition(body, "Active").get("status") == "True":
        return "acting", "good", reasons or state_of(body), condition(body, "Active").get("message", "")
    return "watching", "quiet", reasons or str(promotion.get("reason") or ""), str(promotion.get("message") or "")


def service_of(body: Body) -> str:
    """Return the name of the service in the metrics, or of the first target."""
    spec = body.get("spec") or {}
    named = (spec.get("metrics") or {}).get("service")
    targets = [(spec.get("targets") or {}).get(pool) or {} for pool in POOLS]
    return str(named or next((t.get("deployment") or t.get("name") for t in targets if t), "") or UNKNOWN)


def _moves(body: Body, pool: str) -> str:
    target = ((body.get("status") or {}).get("targets") or {}).get(pool)
    if not target:
        return ""
    now, wanted = target.get("current"), target.get("desired")
    shown = UNKNOWN if now is None else str(int(now))
    return shown if wanted is None or wanted == now else f"{shown} → {int(wanted)}"


def comparison_of(body: Body, now: datetime | None = None) -> Comparison | None:
    """Return the newest day of the evidence beside the other side; None where nothing was compared."""
    promotion = (body.get("status") or {}).get("promotion") or {}
    days = promotion.get("evidence") or ()
    if not days or not days[-1]["otherCost"]:
        return None
    day, today = days[-1], (now or datetime.now(UTC)).date().isoformat()
    saved, requests = day["otherCost"] - day["cost"], day["requests"]
    targets = (body.get("spec") or {}).get("targets") or {}
    price = (targets.get("gpu") or {}).get("costPerHour", GPUTarget.model_fields["cost_per_hour"].default)
    return Comparison(
        saved_percent=100 * saved / day["otherCost"],
        saved_hours=saved / price if "gpu" in targets else None,
        late_percent=100 * day["late"] / requests if requests else None,
        other_late_percent=100 * day["otherLate"] / requests if requests else None,
        when="today" if day["date"] == today else day["date"],
        beside=OTHER_SIDES.get(str(promotion.get("against")), "what runs"),
    )


def evidence_of(body: Body) -> tuple[str, str]:
    """Return the days of evidence, as `6 of 7 days`, and the differences; empty where no policy is compared."""
    promotion = (body.get("status") or {}).get("promotion") or {}
    if promotion.get("days") is None:
        return "", ""
    spec = (body.get("spec") or {}).get("promotion") or {}
    needed = spec.get("minDays", Promotion.model_fields["min_days"].default)
    days = f"{promotion['days']} of {needed} days" if promotion["days"] < needed else f"{promotion['days']} days"
    regret, parts = promotion.get("regret") or {}, []
    if cost := regret.get("costPercent"):
        parts.append(f"cost {cost['mean']:+.0f} %")
    if late := regret.get("latePoints"):
        low, high = late.get("low"), late.get("high")
        equal = low is None or high is None or low <= 0 <= high
        parts.append("lateness equal" if equal else f"{late['mean']:+.2f} percentage points late")
    return days, ", ".join(parts)


def overview(bodies: Iterable[Body], text: str = "", only: str = "", sort: str = "name", page: int = 1) -> Overview:
    """Return a page of the rows whose names hold `text`.

    :param only: `attention`, a word of the state or a mode; empty: all.
    :param sort: one of `SORTS`.
    :param page: number from 1; one past the end is the last.
    """
    rows = [row_of(body) for body in bodies]
    lowered = text.lower()
    chosen = [row for row in rows if lowered in f"{row.namespace}/{row.name} {row.service}".lower()]
    if only:
        chosen = [row for row in chosen if only in (row.word, row.mode.lower(), "attention" if row.attention else "")]
    chosen.sort(key=lambda row: (*_order(row, sort), row.namespace, row.name))
    pages = max(1, -(-len(chosen) // ROWS))
    page = min(max(page, 1), pages)
    return Overview(
        rows=chosen[(page - 1) * ROWS : page * ROWS],
        matching=len(chosen),
        total=len(rows),
        attention=sum(row.attention for row in rows),
        page=page,
        pages=pages,
    )


def _order(row: Row, sort: str) -> tuple[float, ...]:
    """Return the first key of the order; rows without a figure come last."""
    if sort == "state":
        return (("bad", "warn", "quiet", "good").index(row.tone),)
    compared = row.comparison
    if sort == "saved":
        return (1.0, 0.0) if compared is None else (0.0, -compared.saved_percent)
    if sort == "late":
        late = None if compared is None else compared.late_percent
        return (1.0, 0.0) if late is None else (0.0, -late)
    return (0.0,)
