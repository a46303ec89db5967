"""The table and the plot of a folder of measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.scale.contenders import contenders

from rlscaler_dev import markdown
from rlscaler_dev.plot import picture

REACTION = ("p50", "p95", "p100")

NOTE = """\
Seconds from the step of the metric to `spec.replicas` patched (p50 / p95 / max). For rlscaler this is the reactive
floor acting between two action intervals, on one batch for all policies; the actor acts at its interval of 30 s.\
"""

COSTS = (
    *("", "cores", "MiB", "API requests/s", "API server's cores", "adoption s", "restart s"),
    "loop lag ms: p95, p99, max",
)


def load(folder: Path) -> list[dict[str, Any]]:
    """All measurements, in the order of the contenders, then by number of policies."""
    order = list(contenders())
    results = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    return sorted(results, key=lambda result: (order.index(result["contender"]), result["policies"]))


def write_report(folder: Path) -> str:
    """Write `table.md` and `reaction.png`; the table."""
    results = load(folder)
    text = table(results)
    (folder / "table.md").write_text(text)
    if results:
        plot(results, folder / "reaction.png")
    return text


def table(results: list[dict[str, Any]]) -> str:
    """Return Markdown: reaction by number of policies, and the cost at each."""
    numbers = sorted({result["policies"] for result in results})
    rows = []
    for label in dict.fromkeys(result["label"] for result in results):
        cells = {result["policies"]: _reaction(result) for result in results if result["label"] == label}
        rows.append([label, *(cells.get(number, "") for number in numbers)])
    parts = [NOTE, markdown.table(["", *map(str, numbers)], rows)]
    for number in numbers:
        costs = [_cost(result) for result in results if result["policies"] == number]
        parts += [f"{_policies(number)}, nothing changing:", markdown.table(COSTS, costs)]
    return "\n\n".join(parts) + "\n"


def _reaction(result: dict[str, Any]) -> str:
    react = result["react"]
    return " / ".join("never" if react[name] is None else f"{react[name]:.1f}" for name in REACTION)


def _policies(number: int) -> str:
    return "1 policy" if number == 1 else f"{number:,} policies"


def _cost(result: dict[str, Any]) -> list[str]:
    standing, lag, restart = result["standing"], result["lag"], result["restart_seconds"]
    figures = ("total_cores", "total_memory_mib", "requests_per_second", "api_server_cores")
    return [
        result["label"],
        *(str(standing.get(name, "")) for name in figures),
        _adoption(result),
        "" if restart is None else f"{restart:.1f}",
        ", ".join(f"{1000 * lag[name]:g}" for name in ("p95", "p99", "max")) if lag else "",
    ]


def _adoption(result: dict[str, Any]) -> str:
    missing = result["policies"] - result["adopted"]
    return f"{result['adopt_seconds']:.1f}" + (f" for {result['adopted']}, then given up" if missing else "")


def plot(results: list[dict[str, Any]], file: Path) -> None:
    """The share of Deployments patched over time, one panel per number of policies."""
    numbers = sorted({result["policies"] for result in results})
    colors = {label: f"C{i}" for i, label in enumerate(dict.fromkeys(result["label"] for result in results))}
    with picture(file, (5 * len(numbers), 4), 120, bbox_inches="tight") as figure:
        axes = figure.subplots(1, len(numbers), sharey=True, squeeze=False)
        for axis, number in zip(axes[0], numbers, strict=True):
            for result in (result for result in results if result["policies"] == number):
                times = [0.0, *result["react_seconds"]]
                share = [100 * i / number for i in range(len(times))]
                axis.step(times, share, where="post", color=colors[result["label"]], label=result["label"])
            axis.set(title=_policies(number), xlabel="seconds after the step", xscale="symlog", ylim=(0, 103))
        axes[0][0].set_ylabel("% of Deployments patched")
        entries = {
            label: line for axis in axes[0] for line, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.tight_layout()
        figure.legend(entries.values(), entries, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, fontsize="small")
