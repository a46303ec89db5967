"""Page that `rlscaler explain POLICY` prints: the newest decision in the policy's status.

Without the audit log nothing can be decided again: the status has the measured signals, the action and the guards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlscaler_operator.cli.explain.record_page import MEANING
from rlscaler_operator.cli.pages import age, counts, headroom_words, latency_unit, pod_sizes

Body = Mapping[str, Any]

SIGNALS = {
    "cpuUtilization": "%",
    "headroom": "%",
    "gpuUtilization": "%",
    "p95Latency": "ms",
    "throughput": "% of the capacity at maxReplicas",
    "gpuReplicas": "",
    "cpuReplicas": "",
    "loadTrend": "-1 to 1",
    "nearMisses": "0 to 1",
    "loadVariance": "0 to 1",
}
"""Fields of `status.observation` and their units; the time in the episode is constant on a cluster."""


def status_page(body: Body) -> RenderableType | None:
    """Return the page of a policy, given as JSON object; None where nothing was decided yet."""
    status = body.get("status") or {}
    last = status.get("lastDecision")
    if last is None:
        return None
    parts: list[RenderableType] = [_head(body, last)]
    if observation := status.get("observation"):
        parts.append(_observation(observation, latency_unit(body["spec"].get("slo") or {})))
    if last.get("guards"):
        parts.append(_guards(last))
    if status.get("history"):
        parts.append(_history(status["history"]))
    return Group(*(_with_whole_words(part) if isinstance(part, Table) else part for part in parts))


def _head(body: Body, last: Mapping[str, Any]) -> Text:
    metadata = body["metadata"]
    lines = [
        f"Decision {last['id']}",
        f"  policy     {metadata['namespace']}/{metadata['name']}, mode {body['spec'].get('mode', 'Shadow')}",
        f"  time       {last['time']}, {age(last['time'])} ago",
        f"  asked for  {_asked(last.get('action'))}",
        *(
            [f"  headroom   {headroom_words(headroom)}"]
            if (headroom := body["status"].get("headroom")) is not None
            else []
        ),
        f"  replicas   {counts(last['base'])} → {counts(last['desired'])}",
        f"  written    {_written(last)}",
    ]
    lines += [f"  {pool} pods   {size}" for pool, size in pod_sizes(body).items()]
    if last.get("reasons"):
        lines.append(f"  because    {', '.join(last['reasons'])}")
    return Text("\n".join(lines) + "\n")


def _asked(action: Mapping[str, Any] | None) -> str:
    if action is None:
        return "nothing: the actor was not asked"
    return f"gpu {action['gpu']:+d}, cpu {action['cpu']:+d}, {action.get('placement', '')}"


def _written(last: Mapping[str, Any]) -> str:
    if last.get("applied"):
        return str(last.get("result") or "nothing had to change")
    return str(last.get("result") or "no: see the conditions Active and Conflicted in `rlscaler status`")


def _observation(observation: Mapping[str, Any], of_latency: str) -> Table:
    table = _table("Observation", "signal", "value", "unit", "state", "age")
    for name, unit in SIGNALS.items():
        if signal := observation.get(name):
            value, seconds = signal.get("value"), signal.get("ageSeconds")
            table.add_row(
                name,
                "" if value is None else f"{value:g}",
                of_latency if name == "p95Latency" else unit,
                signal["state"],
                "" if seconds is None else f"{seconds:g} s",
            )
    return table


def _guards(last: Mapping[str, Any]) -> Table:
    """Return a table of the first stage and the stages that changed the replicas."""
    table = _table("Changes by guards", "guard", "replicas after it", "meaning")
    before: Any = None
    for guard in last["guards"]:
        if guard["after"] != before:
            table.add_row(guard["name"], counts(guard["after"]), MEANING.get(guard["name"], ""))
        before = guard["after"]
    return table


def _history(history: list[Mapping[str, Any]]) -> Table:
    table = _table("Last changes", "ago", "asked for", "replicas", "written", "because")
    # Rich narrows all columns that may wrap, whatever their min_width; the names of this column are the longest words.
    table.columns[-1].no_wrap = True
    for change in history:
        replicas = f"{counts(change['base'])} → {counts(change['desired'])}"
        written, reasons = "yes" if change.get("applied") else "no", ",\n".join(change.get("reasons") or ())
        table.add_row(age(change["time"]), _asked(change.get("action")), replicas, written, reasons)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table


def _with_whole_words(table: Table) -> Table:
    """Let a narrow terminal break lines between words, never within a name."""
    for column in table.columns:
        column.min_width = max(len(word) for cell in (column.header, *column.cells) for word in f"{cell} -".split())
    return table
