"""Operators with different Leases that look at one policy: the one that acts already goes on, the others hold. Pure.

The acting operator names its Lease in `status.operator`. Another one that sees it asks there whether it still acts, and
is answered with the number of its question. Where no answer comes it takes over. No clock of another machine is read,
and nothing is written where there is one operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

ANSWER_SECONDS = 30.0
"""Time for an answer. A tick takes a second or so, and a Lease may pass to another process meanwhile."""

ASK_SECONDS = 120.0
"""Time between an answer and the next question."""

FORGET_SECONDS = 3 * ASK_SECONDS
"""Time after which an operator that asks no more is gone."""

Verdict = Literal["act", "wait", "ask", "take"]


class OperatorClaim(NamedTuple):
    """`status.operator` of a policy."""

    lease: str = ""
    """Lease of the operator that acts; empty = none has written it."""
    answered: int = 0
    """The number of the question that it answered last."""
    asked_by: str = ""
    """Lease of the operator that asked last."""
    asked: int = 0
    """Number of that question; 0 = none."""

    @classmethod
    def of(cls, status: Mapping[str, Any] | None) -> OperatorClaim:
        """Return the claim in the status of an object; an unreadable one is none."""
        part = (status or {}).get("operator")
        if not isinstance(part, Mapping):
            return cls()
        lease, asked_by = (str(part.get(name) or "") for name in ("lease", "askedBy"))
        answered, question = (n if isinstance(n := part.get(name), int) else 0 for name in ("answered", "asked"))
        return cls(lease, answered, asked_by, question)


@dataclass(slots=True)
class Standing:
    """State of one operator towards the others, for one policy."""

    waiting: bool = False
    """Whether another operator acts."""
    asked: int = 0
    """Number of the last question; 0 = none."""
    asked_at: float = float("-inf")
    """Monotonic time of the last question."""
    overruled: tuple[str, int] | None = None
    """Lease and last answer of an operator that did not answer."""
    _heard: int = 0
    _heard_at: float = float("-inf")
    """Number of another's last question, and the monotonic time when it came."""

    def acts(self, claim: OperatorClaim, own: str) -> bool:
        """Return whether the operator of the Lease `own` acts by this claim."""
        return claim.lease in ("", own) or claim[:2] == self.overruled

    def look(self, claim: OperatorClaim, own: str, now: float) -> Verdict:
        """Return the next step: act, wait, ask the acting operator, or take over from that operator."""
        if claim.asked != self._heard:
            self._heard, self._heard_at = claim.asked, now
        if self.acts(claim, own):
            return "act"
        if not self.asked:
            return "ask"
        if claim.answered == self.asked:
            return "ask" if now - self.asked_at >= ASK_SECONDS else "wait"
        if now - self.asked_at < ANSWER_SECONDS:
            return "wait"
        self.overruled = claim[:2]
        return "take"

    def other(self, claim: OperatorClaim, own: str, now: float) -> str:
        """Return the Lease of another operator that holds; empty where none has asked lately."""
        lately = claim.asked and now - self._heard_at < FORGET_SECONDS
        return claim.asked_by if lately and claim.asked_by != own else ""
