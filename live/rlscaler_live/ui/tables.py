"""Tables of shared budgets and of the consumers of streams, from the JSON objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlscaler_live.ui.overview import row_of
from rlscaler_live.ui.parts import Part
from rlscaler_operator.cli.pages import POOLS
from rlscaler_operator.cli.terminal import UNKNOWN

Body = Mapping[str, Any]

MEMBERS = 200
"""Most members of a budget in its table."""

BUDGET = ("Budget", "Granted of the amount", "Policies", "Fairness", "State")
MEMBER = ("Policy", "Asked", "Granted", "Borrowed", "Running", "Short for", "Reason")
CONSUMER = ("Policy", "State", "Topics", "Group", "Consumers now → wanted", "Reason")


def budgets(bodies: Iterable[Body]) -> list[Part]:
    """Return a table of all budgets, and one of the members of each."""
    ordered = sorted(bodies, key=lambda body: str(body["metadata"]["name"]))
    parts = [Part(columns=BUDGET, rows=[_budget(body) for body in ordered])]
    for body in ordered:
        members = (body.get("status") or {}).get("members") or ()
        name, shown = body["metadata"]["name"], members[:MEMBERS]
        title = f"Members of {name}" + (f", the first {MEMBERS} of {len(members)}" if len(members) > MEMBERS else "")
        parts.append(Part(title=title, columns=MEMBER, rows=[_member(member) for member in shown]))
    return parts if ordered else []


def consumers(bodies: Iterable[Body]) -> list[Part]:
    """Return a table of the policies that scale the consumers of a stream."""
    rows = []
    for body in bodies:
        kafka = ((body.get("spec") or {}).get("signal") or {}).get("kafka")
        if kafka is None:
            continue
        row = row_of(body)
        moves = ", ".join(row.replicas[pool] for pool in POOLS if pool in row.replicas) or UNKNOWN
        topics = ", ".join(map(str, kafka.get("topics") or ()))
        reason = ": ".join(text for text in (row.reason, row.message) if text)
        rows.append([f"{row.namespace}/{row.name}", row.word, topics, str(kafka.get("group", "")), moves, reason])
    return [Part(columns=CONSUMER, rows=sorted(rows))] if rows else []


def _budget(body: Body) -> list[str]:
    status = body.get("status") or {}
    wrong = [row for row in status.get("conditions") or () if row.get("status") == "False"]
    state = "; ".join(f"{row.get('type')}: {row.get('message') or row.get('reason')}" for row in wrong)
    known = str(status.get("summary") or UNKNOWN), str(status.get("policies", UNKNOWN)), _text(status.get("fairness"))
    return [str(body["metadata"]["name"]), *known, state or ("ready" if status else "no operator has reported it")]


def _member(member: Body) -> list[str]:
    numbers = [_text(member.get(name)) for name in ("asked", "granted", "borrowed", "running")]
    reason = str(member.get("reason", "")) + (f" of {member['because']}" if member.get("because") else "")
    starved = f"{member.get('starvedSeconds', 0)} s"
    return [f"{member.get('namespace')}/{member.get('policy')}", *numbers, starved, reason]


def _text(value: Any) -> str:
    return UNKNOWN if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)
