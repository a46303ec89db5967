"""First page of a report: losses and their size, the gate, and the closed share of the distance to hindsight."""

from __future__ import annotations

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.gate import BEGIN, FEWEST_PERCENT, PASSES
from rlscaler_rl.evaluation.report.tables import SECTIONS, cost_floor, decided, title
from rlscaler_rl.evaluation.schema import Closed, Difference, Gate, GateRow, Like, ResultFile, Row
from rlscaler_rl.results.table import Column, Table

RIVALS = {
    "hpa_tuned": "HPA tuned for it",
    "hpa_tuned_all": "HPA tuned for all",
    "rule_tuned": "rule tuned for it",
    "rule_tuned_all": "rule tuned for all",
    "hpa": "HPA default",
    "rule": "rule default",
}
"""Rivals of the first page, in the order of the columns; a rival that was not played is left out."""

MOST_RIVALS = 3
"""Rivals that fit on a page with their intervals."""

_BEGINS = {"hpa_tuned": "HPA tuned for each load", "hpa_tuned_all": "HPA tuned for all loads"}
_ORDER = {"loss": 0, "undecided": 1, "win": 2}
_GATE_ORDER = {"fails": 0, "undecided": 1, PASSES: 2}


def headline(result: ResultFile) -> list[str]:
    """Return sentences on the gate, the distance closed, the place and the losses; then like against like."""
    own = [gate_sentence(result.gate), *_distance(result.closed), _standing(result)]
    return own + [
        " ".join([f"{like.title}, {like.label}:", gate_sentence(like.gate), *_distance(like.closed)])
        for like in result.like_for_like
    ]


def gate_sentence(gate: Gate) -> str:
    """Return the verdict of the gate, with the rows that keep it from passing."""
    good = [row for row in gate.rows if row.status == PASSES]
    if gate.passed:
        text = f"GATE PASSED: on {len(good)} of {len(gate.rows)} workloads"
    else:
        blamed = [
            f"{', '.join(title(row.workload) for row in gate.rows if row.status == status)} ({status})"
            for status in ("fails", "undecided")
            if any(row.status == status for row in gate.rows)
        ]
        text = f"GATE NOT PASSED: {len(good)} of {len(gate.rows)} workloads pass; not {'; '.join(blamed)}"
    stand_ins = f" No tuned contender was played, the defaults stand in: {', '.join(gate.untuned)}." * bool(
        gate.untuned
    )
    return f"{text}.{stand_ins}"


def _distance(shares: list[Closed]) -> list[str]:
    closed = next((item for item in shares if item.workload == ALL), None)
    if closed is None or closed.percent is None:
        return []
    begin = _BEGINS.get(closed.begin, "default HPA")
    return [
        f"It closes {closed_cell(closed)} of the distance from the {begin} (mean J {closed.begin_j:.2f}) "
        f"to the hindsight rule ({closed.end_j:.2f}); its own mean J is {closed.policy_j:.2f}."
    ]


def _standing(result: ResultFile) -> str:
    count = {verdict: len(decided(result, verdict)) for verdict, _, _ in SECTIONS}
    policy = next(row for row in result.rows if row.role == "policy" and row.workload == ALL)
    contenders = [row for row in result.rows if row.workload == ALL and row.role == "contender"]
    ahead = [row.label for row in contenders if row.metrics["j"].mean < policy.metrics["j"].mean]
    place = f"Place {len(ahead) + 1} of {len(contenders) + 1} by mean J"
    behind = f", behind {', '.join(ahead)}" if ahead else ""
    return (
        f"{place}{behind}. Against every contender on every workload: {count['loss']} lost, "
        f"{count['undecided']} undecided, {count['win']} won."
    )


def losses_table(result: ResultFile) -> Table:
    """Return a row for each workload, losses first: difference in J to each rival, the gate, the share closed."""
    rivals = rivals_of(result)
    header = ("workload", "J", "cost", "floor", "late %", *(RIVALS[name] for name in rivals), "gate", "closed")
    cells = {(row.workload, row.contender): row for row in result.rows}
    policy = {row.workload: row for row in result.rows if row.role == "policy"}
    apart = {item.name for item in result.workloads if item.kind == "extra"}
    listed = losses_first(result)
    gates, shares = {row.workload: row for row in result.gate.rows}, {item.workload: item for item in result.closed}
    rows = [
        (
            title(name) + (" (apart)" if name in apart else ""),
            *_figures(policy[name], cost_floor(result, name)),
            *(difference_cell(cells[name, rival].difference) for rival in rivals),
            _gate_cell(gates.get(name)),
            closed_cell(shares.get(name)),
        )
        for name in listed
    ]
    margin = f"{result.gate.margin_percent:g} %"
    note = (
        "J of the policy minus J of the rival, in % of the rival's, with its 95 % interval: above 0 the policy is "
        "worse; loss and win have intervals off zero, the rest is undecided. cost and its physical floor in GPU "
        "replica equivalents. gate: better than HPA and rule tuned for the load, or at most "
        f"{margin} above on a smooth load (s). closed: share of the distance from the tuned HPA to the hindsight rule. "
        "(apart): nothing is tuned for these, what is tuned for all loads stands in."
    )
    return Table(header, rows, "WHERE IT LOSES AND BY HOW MUCH", note)


def rivals_of(result: ResultFile) -> list[str]:
    """Return the played rivals of the first page."""
    played = {row.contender for row in result.rows}
    return [name for name in RIVALS if name in played][:MOST_RIVALS]


def losses_first(result: ResultFile) -> list[str]:
    """Return `all`, then the workloads by the policy's largest loss, then the workloads apart likewise."""
    rivals = rivals_of(result)
    met: dict[str, list[Difference]] = {item.name: [] for item in result.workloads}
    for row in result.rows:
        if row.contender in rivals and row.difference is not None and row.workload != ALL:
            met[row.workload].append(row.difference)

    def key(workload: str) -> tuple[int, float]:
        worst = min((_ORDER[item.verdict] for item in met[workload]), default=2)
        return worst, -max((item.percent for item in met[workload]), default=0.0)

    counted = [item.name for item in result.workloads if item.kind != "extra"]
    apart = [item.name for item in result.workloads if item.kind == "extra"]
    return [ALL, *sorted(counted, key=key), *sorted(apart, key=key)]


def _figures(row: Row, floor: float) -> tuple[str, ...]:
    j, cost, late = (row.metrics[name].mean for name in ("j", "cost", "late_percent"))
    return f"{j:.2f}", f"{cost:.2f}", f"{floor:.2f}", f"{late:.2f}"


def difference_cell(item: Difference | None) -> str:
    """Return the difference in % of the rival's J, with its interval and the verdict."""
    if item is None:
        return ""
    digits = 1 if abs(item.percent) < 10 else 0
    return f"{item.percent:+.{digits}f} % [{item.low_percent:+.0f}, {item.high_percent:+.0f}] {item.verdict}"


def _gate_cell(row: GateRow | None) -> str:
    return "" if row is None else row.status + (" (s)" if row.smooth else "")


def closed_cell(item: Closed | None) -> str:
    """Return the share closed with its interval; a dash where there is next to no distance to close."""
    if item is None or item.percent is None:
        return "-"
    return f"{item.percent:.0f} % [{item.low:.0f}, {item.high:.0f}]"


def gate_table(result: ResultFile) -> Table:
    """Return the gate row by row with the reasons, failing rows first."""
    columns: dict[str, Column] = {
        "workload": lambda row: title(row.workload),
        "load": lambda row: "smooth" if row.smooth else "bursty",
        "gate": "{0.status}",
        "why": "{0.reason}",
    }
    rows = sorted(result.gate.rows, key=lambda row: _GATE_ORDER[row.status])
    note = (
        "A policy acts by default only where its J is below both the tuned HPA and the tuned rule with an interval off "
        f"zero, or at most {result.gate.margin_percent:g} % above on a smooth load."
    )
    return Table.of(columns, rows, "The gate, row by row", note, text_columns=4)


def like_tables(result: ResultFile) -> list[Table]:
    """Return a table for each scope: J, differences to the rivals, the gate and the share closed."""
    return [_like_table(result, like) for like in result.like_for_like]


def _like_table(result: ResultFile, like: Like) -> Table:
    cells = {(row.workload, row.contender): row for row in result.rows}
    rivals = [rival.label for rival in like.gate.rows[0].rivals]
    shares = {row.workload: row for row in like.closed}
    rows = []
    for row in sorted(like.gate.rows, key=lambda row: _GATE_ORDER[row.status]):
        met = [
            f"{cells[row.workload, rival.contender].metrics['j'].mean:.2f} ({difference_cell(rival.difference)})"
            for rival in row.rivals
        ]
        own = cells[row.workload, like.subject].metrics["j"].mean
        rows.append((title(row.workload), f"{own:.2f}", *met, _gate_cell(row), closed_cell(shares.get(row.workload))))
    note = (
        f"J of {like.label}, J of its rivals and in brackets the difference in % of theirs with its 95 % interval: "
        "below 0 it is better than they are. (s): a smooth load."
    )
    return Table(("workload", "J", *rivals, "gate", "closed"), rows, like.title, note)


def closed_table(result: ResultFile) -> Table:
    """Return the share of the distance from the tuned HPA to hindsight that is closed, by workload."""
    rows = [
        (title(item.workload), *(f"{j:.2f}" for j in (item.begin_j, item.policy_j, item.end_j)), closed_cell(item))
        for item in result.closed
    ]
    first = result.closed[0].begin if result.closed else BEGIN[0]
    note = (
        f"(J of {first} - J of the policy) / (J of {first} - J of hindsight); the hindsight rule knows the load and is "
        f"a reference, not a bound. A dash: the two are less than {FEWEST_PERCENT:g} % apart, or not shown to be. The "
        "mean's share is that of the mean distance."
    )
    return Table(("workload", "HPA J", "policy J", "hindsight J", "closed"), rows, "Distance closed", note)


def seeds_table(result: ResultFile) -> Table:
    """Return J over the training seeds; without rows for a single model."""
    rivals = [rival.contender for rival in result.training_seeds[0].rivals] if result.training_seeds else []
    rows = [
        (
            title(row.workload),
            f"{next(iter(row.j.values())):.2f}",
            f"{row.mean:.2f}",
            f"[{row.low:.2f}, {row.high:.2f}]",
            f"{row.std:.2f}",
            f"{row.min:.2f}-{row.max:.2f}",
            *(difference_cell(rival.difference) for rival in row.rivals),
        )
        for row in result.training_seeds
    ]
    header = ("workload", "shipped J", "mean J", "95 % interval", "std", "min-max", *(RIVALS[name] for name in rivals))
    count = len(result.seeds) + 1
    note = f"{count} policies of one recipe; intervals are resampled over training seeds and episodes at once."
    return Table(header, rows, "Over training seeds", note)
