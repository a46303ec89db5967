"""Page that `rlscaler explain` prints for a recorded decision."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlscaler_core.decision.guards import GUARDS, STAGES
from rlscaler_core.decision.headroom import Above, in_words
from rlscaler_core.decision.types import POOLS
from rlscaler_core.decision.units import LOADS
from rlscaler_core.decision.units import UNITS as UNITS_OF_LOAD
from rlscaler_operator.cli.explain.analysis import Analysis, Step
from rlscaler_operator.cli.explain.flips import Flip
from rlscaler_operator.cli.explain.learned import error_budget, forecasts, scale_up, sizes_of
from rlscaler_operator.cli.terminal import UNKNOWN, simple_table

Json = dict[str, Any]

UNITS = {
    "cpu_utilization": "%",
    "headroom": "%",
    "memory_utilization": "%",
    "gpu_utilization": "%",
    "p95_latency": "ms",
    "throughput": "% of the capacity at maxReplicas",
}

MEANING = {STAGES[0]: "What the actor asked for."} | {guard.name: guard.meaning.replace("`", "") for guard in GUARDS}
"""One sentence for each stage of the shield."""

PLACEMENTS = ("prefer GPU", "balanced", "prefer CPU")
WITHHELD = ("Collecting", "Ready")
"""States of `status.promotion` in which replicas are not written."""

STEPS = ("-2", "-1", "0", "+1", "+2")
HEADS = (("gpu", 0, 5), ("cpu", 5, 10))


def record_page(record: Json, analysis: Analysis) -> Group:
    """Return the page of a record and its analysis."""
    parts: list[RenderableType | None] = [_head(record)]
    if record.get("observation"):
        parts.append(_observation(record["observation"]))
    if record.get("probabilities"):
        parts.append(_probabilities(record["probabilities"], record["action"]))
    parts += [forecasts(record), error_budget(record), scale_up(record), _guards(analysis.guards)]
    if analysis.flips is not None and record["kind"] == "action":
        parts.append(_flips(analysis.flips, _load(record)))
    return Group(*(part for part in parts if part is not None), Text(analysis.note))


def action_text(action: Sequence[int]) -> str:
    """Return an action as text, such as `gpu +1, cpu +0, balanced`."""
    gpu, cpu, placement = action
    return f"gpu {gpu:+d}, cpu {cpu:+d}, {PLACEMENTS[placement]}"


def _head(record: Json) -> Text:
    time = datetime.fromtimestamp(record["time"], UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    actor = record.get("actor")
    named = f"{actor['name']} {actor['digest'][:12]}".rstrip() if actor else "none"
    kind = "action of the actor" if record["kind"] == "action" else "sensing tick between two actions"
    moves = ", ".join(f"{pool} {record['base'][pool]} → {record['desired'][pool]}" for pool in POOLS)
    weights = " : ".join(str(record["weights"][pool]) for pool in POOLS)
    policy = f"{record['namespace']}/{record['name']}"
    lines = [
        f"Decision {record['decision_id']}",
        f"  policy     {policy}, mode {record['mode']}, generation {record['generation']}",
        f"  time       {time}, {kind}",
        f"  actor      {named}",
        f"  asked for  {_asked(record)}",
        *plan_lines(record),
        f"  replicas   {moves}; traffic gpu : cpu {weights} ({record['placement']})",
        f"  written    {written(record)}",
    ]
    if (params := record.get("params")) is not None:
        lines.append(f"  carries    {_carried(params, record.get('capacity'))} {_load(record)} a replica")
    if (sizing := record.get("sizing")) is not None:
        lines += [f"  {pool} pods   {text}" for pool, text in sizes_of(sizing).items()]
    if record["flags"]:
        lines.append(f"  because    {', '.join(record['flags'])}")
    if record.get("grant"):
        lines.append(f"  grant      {record['grant']}")
    if record["unknown_required"]:
        lines.append(f"  unknown    {', '.join(record['unknown_required'])}")
    if record["outside_envelope"]:
        lines.append(f"  envelope   {record['outside_envelope']}")
    if took := record.get("seconds"):
        lines.append("  took       " + ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in took.items()))
    return Text("\n".join(lines) + "\n")


def _load(record: Json) -> str:
    """Return the unit of the load; a record of an earlier release counts requests."""
    return LOADS[UNITS_OF_LOAD[(record.get("params") or {}).get("unit", 0)]]


def _carried(params: Json, capacity: Json | None) -> str:
    """Return the capacity of a replica by pool as believed, and as declared where that differs."""
    texts = []
    for pool, declared, there in zip(POOLS, params["requests_per_second"], params["present"], strict=True):
        carried = declared if capacity is None else capacity[pool]
        if there:
            text = "unknown" if carried is None else f"{carried:.4g}"
            differs = capacity is not None and declared is not None and carried != declared
            texts.append(f"{pool} {text} (measured; declared {declared:g})" if differs else f"{pool} {text}")
    return ", ".join(texts)


def plan_lines(record: Json) -> list[str]:
    """Return the lines on the plan of the rule and on the headroom in it; none for an actor that moves none."""
    if (pools := record.get("headroom")) is None:
        return []
    lines = [f"  headroom   {in_words({pool: Above(**value) for pool, value in pools.items()})}"]
    if record["kind"] == "action" and record["guards"]:
        planned = record["guards"][0]["after"]
        lines.insert(
            0, "  plan       " + ", ".join(f"{pool} {planned[pool]}" for pool in POOLS) + ", headroom included"
        )
    return lines


def _asked(record: Json) -> str:
    if record["action"] is not None:
        return action_text(record["action"])
    if record["kind"] != "action":
        return "nothing: the actor is asked at its interval"
    by_rule = record["outside_envelope"] and "Fallback" not in record["flags"]
    return "nothing: outside its envelope the rule decides alone" if by_rule else "no actor ran"


def written(record: Json) -> str:
    """Return the outcome of the writes of a record in words."""
    if record["applied"] is None:
        return "unknown: it was not done before the policy's deadline"
    if record["mode"] != "Auto":
        return f"nothing: mode {record['mode']}"
    if record["conflict"]:
        return f"nothing: Conflicted ({record['conflict']})"
    if record["writes"]:
        return ", ".join(f"{pool} {outcome}" for pool, outcome in record["writes"].items())
    if record["applied"]:
        return "nothing to write"
    promotion = record.get("promotion")
    why = "the spec changed meanwhile or the lease was lost"
    return f"nothing: promotion {promotion}" if promotion in WITHHELD else f"nothing: {why}"


def _observation(observation: Json) -> Table:
    table = simple_table("Observation", "value", "unit", "state", "age s", "fed to the actor")
    for name, signal in observation.items():
        table.add_row(
            name,
            _number(signal["value"]),
            UNITS.get(name, ""),
            signal["state"].lower().replace("_", " "),
            _number(signal["age_seconds"]),
            _number(signal["fed"]),
        )
    return table


def _probabilities(probabilities: Sequence[float | None], action: Sequence[int] | None) -> Table:
    table = simple_table("Probabilities", *STEPS)
    for pool, (name, first, last) in enumerate(HEADS):
        chosen = None if action is None else action[pool] + 2
        table.add_row(name, *_chosen(probabilities[first:last], chosen))
    chosen = None if action is None else action[2]
    cells = _chosen(probabilities[HEADS[-1][2] :], chosen)
    table.add_row("placement", *(f"{cell} {name}" for cell, name in zip(cells, PLACEMENTS, strict=True)))
    return table


def _chosen(values: Sequence[float | None], chosen: int | None) -> list[str]:
    return [f"{'>' if i == chosen else ''}{_number(value)}" for i, value in enumerate(values)]


def _guards(steps: Sequence[Step]) -> Table:
    table = simple_table("Guard", "gpu", "cpu", "without it", "")
    for step in steps:
        moves = [f"{step.before[pool]} → {step.after[pool]}" for pool in POOLS]
        off = "" if step.without is None else ", ".join(f"{pool} {step.without[pool]}" for pool in POOLS)
        table.add_row(step.guard, *moves, off, MEANING.get(step.guard, "") if step.changed else "")
    return table


def _flips(flips: Sequence[Flip], load: str) -> RenderableType:
    if not flips:
        return Text("No single signal, over its whole range, would have changed what the actor asked for.\n")
    table = simple_table("Would have changed it", "was", "at", "unit", "the actor had asked for", "proposal gpu, cpu")
    for flip in flips:
        table.add_row(
            flip.signal,
            _number(flip.measured),
            _number(flip.value),
            load if flip.signal == "arrival_rate" else UNITS.get(flip.signal, ""),
            action_text(flip.action),
            f"{flip.proposal[0]}, {flip.proposal[1]}",
        )
    return table


def _number(value: float | str | None) -> str:
    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else f"{value:.4g}"
