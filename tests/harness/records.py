"""Records of decisions, as the operator writes them into its audit log."""

from __future__ import annotations

from typing import Any

from rlscaler_core.decision.batch import Outcome
from rlscaler_operator.records.record import Subject, line


def recorded(
    outcome: Outcome, decision_id: str = "0190-0", seconds: float = 0.0, name: str = "chat", **changes: Any
) -> dict[str, Any]:
    """Return the record of an outcome of the policy ns/`name` in mode Auto, for which nothing was written."""
    subject = Subject("ns", name, "u", 1, "Auto")
    return line(decision_id, 1e9 + seconds, subject, outcome, [], None, None) | changes
