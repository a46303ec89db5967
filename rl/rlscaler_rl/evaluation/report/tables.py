"""What reports say, as plain rows of text: losses first. Used by the terminal, text and HTML alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.schema import ResultFile, Row, Workload

SECTIONS = (
    ("loss", "EVERY LOSS", "contenders that scored better than the policy, interval off zero"),
    ("undecided", "UNDECIDED", "the interval spans zero: neither win nor loss"),
    ("win", "WINS", "contenders that the policy beat, interval off zero"),
)


@dataclass(frozen=True, slots=True)
class Table:
    """Header and rows of strings; the first column is text, the others are figures unless `text_columns` says."""

    title: str
    note: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    text_columns: int = 1


def verdict_tables(result: ResultFile, *, short: bool = False) -> list[Table]:
    """Losses, undecided rows and wins, the mean over the workloads first, then by size; references are left out.

    `short` leaves the two scores out, so that a row fits 80 columns.
    """
    header = ("workload", "contender", "policy J", "its J", "difference", "95 % interval", "%")
    keep = (0, 1, 4, 5, 6) if short else range(len(header))
    return [
        Table(
            title,
            note,
            tuple(header[column] for column in keep),
            [tuple(_verdict_row(result, row)[column] for column in keep) for row in decided(result, verdict)],
            2,
        )
        for verdict, title, note in SECTIONS
    ]


def score_tables(result: ResultFile) -> list[Table]:
    """One table per workload and the mean over all, best score first."""
    header = (
        "contender",
        "J",
        "95 % interval",
        "runs min-max",
        "cost",
        "x floor",
        "late %",
        "goodput/s",
        "p95 ms",
        "good/cost",
        "weighted %",
        "up/down",
        "vs policy",
    )
    tables = []
    for workload in [ALL, *(item.name for item in result.workloads)]:
        chosen = [row for row in result.rows if row.workload == workload]
        chosen.sort(key=lambda row: row.metrics["j"].mean)
        tables.append(
            Table(
                _workload_title(result, workload),
                _floor_note(result, workload),
                header,
                [_score_row(row, cost_floor(result, workload)) for row in chosen],
            )
        )
    return tables


def spread_table(result: ResultFile) -> Table:
    """The policy alone: every metric on every workload, mean and spread over the runs."""
    shown = ("j", "cost", "late_percent", "goodput_rps", "goodput_per_cost", "p95_ms", "scale_ups", "scale_downs")
    rows = [
        (
            title(row.workload),
            name,
            *(f"{getattr(row.metrics[name], column):.3g}" for column in ("mean", "std", "min", "max")),
        )
        for row in result.rows
        if row.role == "policy"
        for name in shown
    ]
    note = "Mean over the runs, their standard deviation, the lowest and the highest run; all metrics are in the JSON."
    return Table(
        f"{result.model.name}, metric by metric", note, ("workload", "metric", "mean", "std", "min", "max"), rows, 2
    )


def cost_floor(result: ResultFile, workload: str) -> float:
    """Mean physical floor of a workload, or of those that `all` averages."""
    chosen = _averaged(result) if workload == ALL else [item for item in result.workloads if item.name == workload]
    return sum(item.cost_floor for item in chosen) / len(chosen)


def improvement_table(result: ResultFile) -> Table:
    """The `weighted` objective of the policy against default HPA."""
    names = ("latency", "throughput", "efficiency", "stability", "weighted")
    rows = [
        (title(row.workload), *(f"{row.improvement[name]:+.1f}" for name in names))
        for row in result.rows
        if row.role == "policy" and row.improvement is not None
    ]
    note = "% against default HPA; weights .4 p95 latency, .3 goodput, .2 cost, .1 number of changes; negative is worse"
    return Table("Objective weighted: improvement over default HPA", note, ("workload", *names), rows)


def dependence_table(result: ResultFile) -> Table:
    rows = [
        (
            check.label,
            f"{check.difference.mean:+.2f}",
            f"[{check.difference.low:+.2f}, {check.difference.high:+.2f}]",
            f"{check.difference.percent:+.1f}",
            "yes" if check.passed else "NO",
        )
        for check in result.dependence
    ]
    note = (
        "Policy minus control, mean of the workloads; every control must score visibly worse, or the run says nothing."
    )
    return Table(
        "Does the outcome depend on the network?", note, ("control", "difference", "95 % interval", "%", "worse"), rows
    )


def invariant_table(result: ResultFile) -> Table:
    rows = [
        (item.statement, f"{item.checked}", f"{max(item.worst, 0.0):.1e}", "yes" if item.holds else "NO")
        for item in result.invariants
    ]
    return Table(
        "Is the meter sound?",
        "Recomputed from raw counters.",
        ("invariant", "episodes", "worst deviation", "holds"),
        rows,
    )


UNCOUNTED = ("reference", "variant")
"""Roles that a loss to does not count: they know the load, or are the policy itself under other settings."""


def decided(result: ResultFile, verdict: str) -> list[Row]:
    found = [
        row for row in result.rows if row.difference and row.difference.verdict == verdict and row.role not in UNCOUNTED
    ]
    size = {id(row): abs(row.difference.percent) for row in found if row.difference}
    return sorted(found, key=lambda row: (row.workload != ALL, -size[id(row)]))


def _verdict_row(result: ResultFile, row: Row) -> tuple[str, ...]:
    assert row.difference is not None
    policy = next(item for item in result.rows if item.role == "policy" and item.workload == row.workload)
    mark = {"sweep": " (sweep)", "control": " (control)", "seed": " (training seed)"}.get(row.role, "")
    return (
        title(row.workload),
        row.label + mark,
        f"{policy.metrics['j'].mean:.2f}",
        f"{row.metrics['j'].mean:.2f}",
        f"{row.difference.mean:+.2f}",
        f"[{row.difference.low:+.2f}, {row.difference.high:+.2f}]",
        f"{row.difference.percent:+.0f}",
    )


def _score_row(row: Row, floor: float) -> tuple[str, ...]:
    metrics = row.metrics
    j = metrics["j"]
    return (
        row.label + {"reference": " *", "control": " (control)", "policy": " <--"}.get(row.role, ""),
        f"{j.mean:.2f}",
        f"[{j.low:.2f}, {j.high:.2f}]",
        f"{j.min:.2f}-{j.max:.2f}",
        f"{metrics['cost'].mean:.2f}",
        f"{metrics['cost'].mean / floor:.2f}",
        f"{metrics['late_percent'].mean:.2f}",
        f"{metrics['goodput_rps'].mean:.1f}",
        f"{metrics['p95_ms'].mean:.0f}",
        f"{metrics['goodput_per_cost'].mean:.1f}",
        f"{row.improvement['weighted']:+.0f}" if row.improvement else "",
        f"{metrics['scale_ups'].mean:.1f}/{metrics['scale_downs'].mean:.1f}",
        row.difference.verdict if row.difference else "",
    )


def _workload_title(result: ResultFile, workload: str) -> str:
    return f"Mean of {len(_averaged(result))} workloads" if workload == ALL else title(workload)


def title(workload: str) -> str:
    """A workload's name for people."""
    return _TITLES.get(workload, workload.replace("_", " ").capitalize())


_TITLES = {
    ALL: "Mean",
    "servegen_small": "ServeGen small",
    "servegen_large": "ServeGen large",
    "worldcup": "World Cup 98",
    "varied": "Patterns varied",
    "flat": "Steady",
    "one_pool": "One pool",
}


def _averaged(result: ResultFile) -> list[Workload]:
    """What `all` is the mean of."""
    return [item for item in result.workloads if item.kind != "extra"] or result.workloads


def _floor_note(result: ResultFile, workload: str) -> str:
    chosen = _averaged(result) if workload == ALL else [item for item in result.workloads if item.name == workload]

    def mean(name: str) -> float:
        return float(sum(getattr(item, name) for item in chosen)) / len(chosen)

    played = f"{sum(item.episodes for item in chosen)} episodes of {chosen[0].duration_seconds} s"
    if workload != ALL:
        if chosen[0].blocks is not None:
            played += f" from {chosen[0].blocks} distinct blocks"
        played = f"{chosen[0].note}. {played}" if chosen[0].note else played
    return (
        f"{played[0].upper()}{played[1:]}, mean {mean('mean_rps'):.1f} requests/s, peak {mean('peak_rps'):.0f}. "
        f"No contender can pay less than {mean('cost_floor'):.2f} (arrivals x service time x price); "
        f"minReplicas cost {mean('minimum_cost'):.2f}."
    )
