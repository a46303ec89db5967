"""Policies on the terminal, from their JSON objects: a table of many, a page of one.

A policy whose spec is wrong has to be shown as well, so nothing here parses the spec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlscaler_core.decision.headroom import Above, in_words
from rlscaler_core.decision.units import LOADS
from rlscaler_operator.cli.terminal import UNKNOWN

POOLS = ("gpu", "cpu")
BAD_WHEN_TRUE = ("Fallback", "Paused", "Conflicted", "CapacityUnknown", "CapacityBelowDeclared", "ModelOutdated")

Body = Mapping[str, Any]


def table(bodies: Sequence[Body], everywhere: bool) -> RenderableType:
    """Return a table with one line for each policy, and below it the conditions that need attention."""
    rows = Table(box=None, pad_edge=False, header_style="")
    columns = ("POLICY", "MODE", "STATE", "GPU", "CPU", "PLACEMENT", "LATENCY", "COST/H", "READY", "AGE")
    for column in ("NAMESPACE", *columns) if everywhere else columns:
        rows.add_column(column, no_wrap=True)
    for body in bodies:
        metadata = body["metadata"]
        row = [metadata["name"], mode_of(body), state_of(body), *(pool_of(body, pool) for pool in POOLS)]
        row += [_placement(body), _latency(body), _number(body, "costPerHour"), _colored(condition(body, "Ready"))]
        row.append(age(metadata.get("creationTimestamp")))
        rows.add_row(*([metadata["namespace"], *row] if everywhere else row))
    notes = [
        Text(f"{body['metadata']['name']}: {type_} ({reason}): {message}", style="yellow")
        for body in bodies
        for type_, reason, message in troubles(body)
    ]
    return Group(rows, *([Text("")] if notes else []), *notes)


def detail(body: Body) -> RenderableType:
    """Return the page of one policy: its facts and its conditions."""
    metadata, status = body["metadata"], body.get("status") or {}
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_row("Policy", f"{metadata['namespace']}/{metadata['name']}, {age(metadata.get('creationTimestamp'))} old")
    facts.add_row("Mode", f"{mode_of(body)}, {state_of(body)}")
    for pool in POOLS:
        if target := (status.get("targets") or {}).get(pool):
            facts.add_row(pool.upper(), _target(target))
    facts.add_row("Traffic", _placement(body) + _weights(body))
    facts.add_row("Latency", _latency(body))
    facts.add_row("Capacity", _capacity(body))
    if (headroom := status.get("headroom")) is not None:
        facts.add_row("Headroom", headroom_words(headroom))
    for pool, size in pod_sizes(body).items():
        facts.add_row(f"{pool.upper()} pods", size)
    facts.add_row("Cost", f"{_number(body, 'costPerHour')} an hour")
    if model := status.get("model"):
        facts.add_row("Model", f"{model.get('name')} {str(model.get('digest') or '')[:12]}".strip())
    if promotion := status.get("promotion"):
        facts.add_row("Promotion", evidence(promotion))
    if last := status.get("lastDecision"):
        facts.add_row("Decided", _decided(last))
    conditions = Table(box=None, pad_edge=False, header_style="")
    for column in ("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"):
        conditions.add_column(column, no_wrap=column != "MESSAGE")
    for row in status.get("conditions") or ():
        since = age(row.get("lastTransitionTime"))
        conditions.add_row(row["type"], _colored(row), row.get("reason", ""), since, row.get("message", ""))
    return Group(facts, Text(""), conditions)


def condition(body: Body, type_: str) -> Mapping[str, str]:
    """Return a condition of the policy; empty where the operator has not reported it yet."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == type_), {})


def mode_of(body: Body) -> str:
    return str((body.get("spec") or {}).get("mode") or "Shadow")


def state_of(body: Body) -> str:
    """Return the reason of the condition Active: why replicas follow the decisions, or why not."""
    return condition(body, "Active").get("reason") or "NotSeenYet"


def pool_of(body: Body, pool: str) -> str:
    """Return the replicas of a pool as `ready/desired`."""
    target = ((body.get("status") or {}).get("targets") or {}).get(pool) or {}
    return str(target.get("summary") or UNKNOWN)


def headroom_words(headroom: Mapping[str, Any]) -> str:
    """Return `status.headroom` as text, such as `gpu 18 % above the plan since 09:14`."""
    since = {pool: datetime.fromisoformat(value["since"]).timestamp() for pool, value in headroom.items()}
    return in_words({pool: Above(value["percent"], since[pool]) for pool, value in headroom.items()})


def pod_sizes(body: Body) -> dict[str, str]:
    """Return by pool the recommended requests of its pods, as text; pools without a recommendation are left out."""
    sizes = (body.get("status") or {}).get("podSizes") or {}
    shown = {pool: sizes.get(pool) or {} for pool in POOLS}
    return {
        pool: "should ask for " + ", ".join(f"{size[name]} {name}" for name in ("cpu", "memory") if name in size)
        for pool, size in shown.items()
        if size
    }


def troubles(body: Body) -> Iterator[tuple[str, str, str]]:
    """Yield the conditions that need attention as (type, reason, message)."""
    if not (body.get("status") or {}).get("conditions"):
        yield "Unseen", "NoReport", "no operator has said anything about it: is one running for this namespace?"
    for row in (body.get("status") or {}).get("conditions") or ():
        bad = row["status"] != "True" if row["type"] == "Ready" else row["status"] == "True"
        if bad and row["type"] in ("Ready", *BAD_WHEN_TRUE):
            yield row["type"], row.get("reason", ""), row.get("message", "")


def evidence(promotion: Mapping[str, Any]) -> str:
    """Return one line that compares the policy with the scaler that it would replace."""
    parts = [str(promotion.get("state"))]
    if promotion.get("days") is not None:
        parts.append(f"{promotion['days']} days of evidence")
    regret = promotion.get("regret") or {}
    for name, unit in (("costPercent", "% cost"), ("latePoints", "points of late requests")):
        if interval := regret.get(name):
            parts.append(f"{interval['mean']:+.1f} {unit}{_bounds(interval)}")
    if promotion.get("message"):
        parts.append(str(promotion["message"]))
    return ", ".join(parts)


def age(text: str | None, now: datetime | None = None) -> str:
    """Return the time since an RFC 3339 time as kubectl writes it: 45s, 12m, 3h, 8d."""
    if not text:
        return UNKNOWN
    seconds = max(0, int(((now or datetime.now(UTC)) - datetime.fromisoformat(text)).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def counts(pools: Mapping[str, Any] | None) -> str:
    """Return numbers by pool as `gpu 2, cpu 3`."""
    return ", ".join(f"{pool} {(pools or {})[pool]}" for pool in POOLS if (pools or {}).get(pool) is not None)


def _bounds(interval: Mapping[str, Any]) -> str:
    low, high = interval.get("low"), interval.get("high")
    return "" if low is None or high is None else f" ({low:+.1f} to {high:+.1f})"


def _target(target: Mapping[str, Any]) -> str:
    numbers = ", ".join(f"{target[name]} {name}" for name in ("ready", "starting", "desired") if name in target)
    return f"{target.get('deployment')}: {numbers or 'the Deployment does not exist'}"


def _placement(body: Body) -> str:
    return str(((body.get("status") or {}).get("placement") or {}).get("preference") or UNKNOWN)


def _weights(body: Body) -> str:
    placement = (body.get("status") or {}).get("placement") or {}
    weights = placement.get("weights") or {}
    route = placement.get("httpRoute")
    where = f" on HTTPRoute {route}" if route else " as an annotation only"
    return f", gpu {weights['gpu']} : cpu {weights['cpu']}{where}" if weights else ""


def _latency(body: Body) -> str:
    """Return the measured latency and the latency objective as `p95 120/200 ms`."""
    slo = (body.get("spec") or {}).get("slo") or {}
    latency = (body.get("status") or {}).get("latency") or {}
    value = latency.get("milliseconds")
    percentile = f"p{latency['percentile']:g} " if "percentile" in latency else ""
    shown = UNKNOWN if value is None else f"{value:.0f}"
    return f"{percentile}{shown}/{slo.get('latencyMilliseconds', UNKNOWN)} {latency_unit(slo)}"


def latency_unit(slo: Mapping[str, Any]) -> str:
    """Return the unit of a latency by `spec.slo`, for a token latency with its name and the objective of a second."""
    signal, token_ms = slo.get("signal", "endToEnd"), slo.get("timePerOutputTokenMilliseconds")
    as_first = "" if token_ms is None else f", tpot of {token_ms} ms as {slo.get('latencyMilliseconds')}"
    return "ms" if signal == "endToEnd" else f"ms ({signal}{as_first})"


def _capacity(body: Body) -> str:
    """Return the load that a replica carries, as `gpu 20, cpu 4 requests/s a replica`."""
    capacity = (body.get("status") or {}).get("capacity") or {}
    unit = capacity.get("unit") or ((body.get("spec") or {}).get("capacity") or {}).get("unit", "requests")
    pools = {pool: f"{capacity[pool]:g}" for pool in POOLS if capacity.get(pool) is not None}
    return f"{counts(pools) or UNKNOWN} {LOADS.get(unit, unit)} a replica"


def _number(body: Body, name: str) -> str:
    value = (body.get("status") or {}).get(name)
    return UNKNOWN if value is None else f"{value:.2f}"


def _decided(last: Mapping[str, Any]) -> str:
    reasons = f" ({', '.join(last['reasons'])})" if last.get("reasons") else ""
    result = "" if last.get("applied") else ", not written"
    change = f"{counts(last.get('base'))} -> {counts(last.get('desired'))}"
    return f"{age(last.get('time'))} ago: {change}{result}{reasons}, ID {last.get('id')}"


def _colored(condition: Mapping[str, str]) -> Text:
    status = condition.get("status", "Unknown")
    good = {"Ready": "True", "Active": "True"}.get(condition.get("type", ""), "False")
    return Text(status, style="green" if status == good else "yellow")
