"""Tables of a report beyond its first page: verdicts, scores, checks and provenance."""

from __future__ import annotations

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.schema import ResultFile, Row, Workload
from rlscaler_rl.results.table import Column, Table

SECTIONS = (
    ("loss", "EVERY LOSS", "contenders that scored better than the policy, interval off zero"),
    ("undecided", "UNDECIDED", "the interval spans zero: neither win nor loss"),
    ("win", "WINS", "contenders that the policy beat, interval off zero"),
)

UNCOUNTED = ("reference", "variant")
"""Roles that a loss to does not count: they know the load, or are the policy itself under other settings."""

_TITLES = {
    ALL: "Mean",
    "servegen_small": "ServeGen small",
    "servegen_large": "ServeGen large",
    "worldcup": "World Cup 98",
    "varied": "Patterns varied",
    "flat": "Steady",
    "one_pool": "One pool",
}


def title(workload: str) -> str:
    """Return the name of a workload for people."""
    return _TITLES.get(workload, workload.replace("_", " ").capitalize())


def decided(result: ResultFile, verdict: str) -> list[Row]:
    """Return the counted rows with a verdict: the mean over the workloads first, then by size of the difference."""
    rows = [
        row for row in result.rows if row.difference and row.difference.verdict == verdict and row.role not in UNCOUNTED
    ]
    size = {id(row): abs(row.difference.percent) for row in rows if row.difference}
    return sorted(rows, key=lambda row: (row.workload != ALL, -size[id(row)]))


def verdict_tables(result: ResultFile) -> list[Table]:
    """Return losses, undecided rows and wins."""
    policy = {row.workload: f"{row.metrics['j'].mean:.2f}" for row in result.rows if row.role == "policy"}
    marks = {"sweep": " (sweep)", "control": " (control)", "seed": " (training seed)"}
    columns: dict[str, Column] = {
        "workload": lambda row: title(row.workload),
        "contender": lambda row: row.label + marks.get(row.role, ""),
        "policy J": lambda row: policy[row.workload],
        "its J": "{0.metrics[j].mean:.2f}",
        "difference": "{0.difference.mean:+.2f}",
        "95 % interval": "[{0.difference.low:+.2f}, {0.difference.high:+.2f}]",
        "%": "{0.difference.percent:+.0f}",
    }
    return [
        Table.of(columns, decided(result, verdict), title, note, text_columns=2) for verdict, title, note in SECTIONS
    ]


def score_tables(result: ResultFile) -> list[Table]:
    """Return a table for each workload and the mean over all, best score first."""
    tables = []
    for workload in [ALL, *(item.name for item in result.workloads)]:
        rows = sorted((row for row in result.rows if row.workload == workload), key=lambda row: row.metrics["j"].mean)
        heading = f"Mean of {len(_averaged(result))} workloads" if workload == ALL else title(workload)
        scores = _score_columns(cost_floor(result, workload))
        tables.append(Table.of(scores, rows, heading, _floor_note(result, workload)))
    return tables


def _score_columns(floor: float) -> dict[str, Column]:
    marks = {"reference": " *", "control": " (control)", "policy": " <--"}
    return {
        "contender": lambda row: row.label + marks.get(row.role, ""),
        "J": "{0.metrics[j].mean:.2f}",
        "95 % interval": "[{0.metrics[j].low:.2f}, {0.metrics[j].high:.2f}]",
        "runs min-max": "{0.metrics[j].min:.2f}-{0.metrics[j].max:.2f}",
        "cost": "{0.metrics[cost].mean:.2f}",
        "x floor": lambda row: f"{row.metrics['cost'].mean / floor:.2f}",
        "late %": "{0.metrics[late_percent].mean:.2f}",
        "goodput/s": "{0.metrics[goodput_rps].mean:.1f}",
        "p95 ms": "{0.metrics[p95_ms].mean:.0f}",
        "good/cost": "{0.metrics[goodput_per_cost].mean:.1f}",
        "weighted %": lambda row: f"{row.improvement['weighted']:+.0f}" if row.improvement else "",
        "up/down": "{0.metrics[scale_ups].mean:.1f}/{0.metrics[scale_downs].mean:.1f}",
        "vs policy": lambda row: row.difference.verdict if row.difference else "",
    }


def cost_floor(result: ResultFile, workload: str) -> float:
    """Return the mean physical floor of a workload, or of the workloads that `all` averages."""
    workloads = _part(result, workload)
    return sum(item.cost_floor for item in workloads) / len(workloads)


def _averaged(result: ResultFile) -> list[Workload]:
    """Return the workloads that `all` averages."""
    return [item for item in result.workloads if item.kind != "extra"] or result.workloads


def _part(result: ResultFile, workload: str) -> list[Workload]:
    return _averaged(result) if workload == ALL else [item for item in result.workloads if item.name == workload]


def _floor_note(result: ResultFile, workload: str) -> str:
    workloads = _part(result, workload)
    first = workloads[0]

    def mean(name: str) -> float:
        return float(sum(getattr(item, name) for item in workloads)) / len(workloads)

    played = f"{sum(item.episodes for item in workloads)} episodes of {first.duration_seconds} s"
    if workload != ALL:
        played += f" from {first.blocks} distinct blocks" if first.blocks is not None else ""
        played = f"{first.note}. {played}" if first.note else played
    return (
        f"{played[0].upper()}{played[1:]}, mean {mean('mean_rps'):.1f} requests/s, peak {mean('peak_rps'):.0f}. "
        f"No contender can pay less than {mean('cost_floor'):.2f} (arrivals x service time x price); "
        f"minReplicas cost {mean('minimum_cost'):.2f}."
    )


def spread_table(result: ResultFile) -> Table:
    """Return every metric of the policy on every workload, mean and spread over the runs."""
    shown = ("j", "cost", "late_percent", "goodput_rps", "goodput_per_cost", "p95_ms", "scale_ups", "scale_downs")
    columns = ("mean", "std", "min", "max")
    rows = [
        (title(row.workload), name, *(f"{getattr(row.metrics[name], column):.3g}" for column in columns))
        for row in result.rows
        if row.role == "policy"
        for name in shown
    ]
    note = "Mean over the runs, their standard deviation, the lowest and the highest run; all metrics are in the JSON."
    return Table(("workload", "metric", *columns), rows, f"{result.model.name}, metric by metric", note, 2)


def improvement_table(result: ResultFile) -> Table:
    """Return the weighted improvement of the policy over default HPA."""
    names = ("latency", "throughput", "efficiency", "stability", "weighted")
    rows = [
        (title(row.workload), *(f"{row.improvement[name]:+.1f}" for name in names))
        for row in result.rows
        if row.role == "policy" and row.improvement is not None
    ]
    note = "% against default HPA; weights .4 p95 latency, .3 goodput, .2 cost, .1 number of changes; negative is worse"
    return Table(("workload", *names), rows, "Weighted improvement over default HPA", note)


def check_tables(result: ResultFile) -> list[Table]:
    """Return the checks of the run itself: does the outcome depend on the network, and is the meter sound?"""
    controls: dict[str, Column] = {
        "control": "{0.label}",
        "difference": "{0.difference.mean:+.2f}",
        "95 % interval": "[{0.difference.low:+.2f}, {0.difference.high:+.2f}]",
        "%": "{0.difference.percent:+.1f}",
        "worse": lambda check: "yes" if check.passed else "NO",
    }
    note = "Policy minus control, mean of the workloads; each control must score visibly worse, or the run is invalid."
    laws: dict[str, Column] = {
        "invariant": "{0.statement}",
        "episodes": "{0.checked}",
        "worst deviation": lambda law: f"{max(law.worst, 0.0):.1e}",
        "holds": lambda law: "yes" if law.holds else "NO",
    }
    return [
        Table.of(controls, result.dependence, "Does the outcome depend on the network?", note),
        Table.of(laws, result.invariants, "Is the meter sound?", "Recomputed from raw counters."),
    ]


def provenance_table(result: ResultFile) -> Table:
    """Return settings, models, digests and machine of the run."""
    model, path = result.model, f" ({result.model.path})" if result.model.path else ""
    packages = ", ".join(f"{name} {number}" for name, number in result.versions.items())
    rows = [
        *(
            (name, "/".join(map(str, value)) if isinstance(value, list) else str(value))
            for name, value in result.settings.items()
        ),
        ("model", f"{model.name}{path}, stack {model.stack_size}, residual {model.residual}"),
        *(("other training seed", sibling.name) for sibling in result.seeds),
        ("sha256 of the model", result.digests.model),
        ("sha256 of the rows", result.digests.rows),
        *((f"sha256 of {name}", digest) for name, digest in result.digests.scenarios.items()),
        ("created", f"{result.created}, {result.wall_seconds:.0f} s on {result.machine}; {packages}"),
        ("files", ", ".join(result.files)),
    ]
    note = (
        f"{result.level.capitalize()} level. Every contender met the same arrivals and the same cold starts; run r "
        "uses seed + r."
    )
    return Table(("", ""), rows, "How it was made", note, 2)


def metrics_table(result: ResultFile) -> Table:
    """Return meaning and unit of each metric."""
    return Table(("metric", "meaning"), list(result.metrics.items()), "Metrics", text_columns=2)
