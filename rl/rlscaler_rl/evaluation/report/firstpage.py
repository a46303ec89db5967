"""The first page: where the policy loses and by how much, the gate, and the distance it closes."""

from __future__ import annotations

from rlscaler_rl.evaluation.board import ALL
from rlscaler_rl.evaluation.claims import DEFINITION
from rlscaler_rl.evaluation.gate import BEGIN, FEWEST_PERCENT, PASSES
from rlscaler_rl.evaluation.report.tables import SECTIONS, Table, cost_floor, decided, title
from rlscaler_rl.evaluation.schema import Closed, Difference, Gate, GateRow, Like, ResultFile, Row

RIVALS = {
    "hpa_tuned": "HPA tuned for it",
    "hpa_tuned_all": "HPA tuned for all",
    "rule_tuned": "rule tuned for it",
    "rule_tuned_all": "rule tuned for all",
    "hpa": "HPA default",
    "rule": "rule default",
}
"""The rivals that the first page compares with, as far as they were played, in the order of the columns."""

MOST_RIVALS = 3
"""So many rivals fit on a page with their intervals."""

_BEGINS = {"hpa_tuned": "HPA tuned for each load", "hpa_tuned_all": "HPA tuned for all loads"}
_ORDER = {"loss": 0, "undecided": 1, "win": 2}


def headline(result: ResultFile) -> list[str]:
    """The gate's verdict, the mean, the distance closed and how many rows were lost; then like against like."""
    closed = next((item for item in result.closed if item.workload == ALL), None)
    own = [gate_sentence(result.gate), *_distance(closed), _standing(result)]
    return own + [" ".join([f"{like.title}, {like.label}:", *_like(like)]) for like in result.like_for_like]


def _like(like: Like) -> list[str]:
    return [gate_sentence(like.gate), *_distance(next((row for row in like.closed if row.workload == ALL), None))]


def gate_sentence(gate: Gate) -> str:
    """Passes or does not, and which rows are to blame."""
    good = [row for row in gate.rows if row.status == PASSES]
    text = f"The gate passes on {len(good)} of {len(gate.rows)} workloads"
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


def _distance(found: Closed | None) -> list[str]:
    if found is None or found.percent is None:
        return []
    begin = _BEGINS.get(found.begin, "default HPA")
    return [
        f"It closes {closed_cell(found)} of the distance from the {begin} (mean J {found.begin_j:.2f}) "
        f"to the hindsight rule ({found.end_j:.2f}); its own mean J is {found.policy_j:.2f}."
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
    """A row per workload, those with losses first: difference in J to each rival, the gate, the share closed."""
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
    return Table("WHERE IT LOSES AND BY HOW MUCH", note, header, rows)


def rivals_of(result: ResultFile) -> list[str]:
    played = {row.contender for row in result.rows}
    return [name for name in RIVALS if name in played][:MOST_RIVALS]


def losses_first(result: ResultFile) -> list[str]:
    """The mean, then workloads by what the policy loses there, then those that are reported apart likewise."""
    rivals = rivals_of(result)
    met: dict[str, list[Difference]] = {item.name: [] for item in result.workloads}
    for row in result.rows:
        if row.contender in rivals and row.difference is not None and row.workload != ALL:
            met[row.workload].append(row.difference)

    def key(workload: str) -> tuple[int, float]:
        worst = min((_ORDER[found.verdict] for found in met[workload]), default=2)
        return worst, -max((found.percent for found in met[workload]), default=0.0)

    counted = [item.name for item in result.workloads if item.kind != "extra"]
    apart = [item.name for item in result.workloads if item.kind == "extra"]
    return [ALL, *sorted(counted, key=key), *sorted(apart, key=key)]


def _figures(row: Row, floor: float) -> tuple[str, ...]:
    mean = {name: row.metrics[name].mean for name in ("j", "cost", "late_percent")}
    return f"{mean['j']:.2f}", f"{mean['cost']:.2f}", f"{floor:.2f}", f"{mean['late_percent']:.2f}"


def difference_cell(found: Difference | None) -> str:
    """The difference in % of the rival's J, with its interval and the verdict."""
    if found is None:
        return ""
    digits = 1 if abs(found.percent) < 10 else 0
    return f"{found.percent:+.{digits}f} % [{found.low_percent:+.0f}, {found.high_percent:+.0f}] {found.verdict}"


def _gate_cell(row: GateRow | None) -> str:
    return "" if row is None else row.status + (" (s)" if row.smooth else "")


def closed_cell(found: Closed | None) -> str:
    """A dash where there is next to no distance to close."""
    if found is None or found.percent is None:
        return "-"
    return f"{found.percent:.0f} % [{found.low:.0f}, {found.high:.0f}]"


def gate_table(result: ResultFile) -> Table:
    """Row by row, the failing ones first, with their reason."""
    order = {"fails": 0, "undecided": 1, PASSES: 2}
    rows = [
        (title(row.workload), "smooth" if row.smooth else "bursty", row.status, row.reason)
        for row in sorted(result.gate.rows, key=lambda row: order[row.status])
    ]
    note = (
        "A policy acts by default only where its J is below both the tuned HPA and the tuned rule with an interval off "
        f"zero, or at most {result.gate.margin_percent:g} % above on a smooth load."
    )
    return Table("The gate, row by row", note, ("workload", "load", "gate", "why"), rows, text_columns=4)


def like_tables(result: ResultFile) -> list[Table]:
    """A table per scope: J, differences to the rivals, the gate and the share closed."""
    return [_like_table(result, like) for like in result.like_for_like]


def _like_table(result: ResultFile, like: Like) -> Table:
    cells = {(row.workload, row.contender): row for row in result.rows}
    rivals = [rival.label for rival in like.gate.rows[0].rivals]
    shares = {row.workload: row for row in like.closed}
    order = {"fails": 0, "undecided": 1, PASSES: 2}
    rows = []
    for row in sorted(like.gate.rows, key=lambda row: order[row.status]):
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
    return Table(like.title, note, ("workload", "J", *rivals, "gate", "closed"), rows)


def closed_table(result: ResultFile) -> Table:
    """The share of the distance from the tuned HPA to hindsight that is closed, per workload."""
    rows = [
        (
            title(item.workload),
            f"{item.begin_j:.2f}",
            f"{item.policy_j:.2f}",
            f"{item.end_j:.2f}",
            closed_cell(item),
        )
        for item in result.closed
    ]
    first = result.closed[0].begin if result.closed else BEGIN[0]
    note = (
        f"(J of {first} - J of the policy) / (J of {first} - J of hindsight); the hindsight rule knows the load and is "
        f"a reference, not a bound. A dash: the two are less than {FEWEST_PERCENT:g} % apart, or not shown to be. The "
        "mean's share is that of the mean distance."
    )
    return Table("Distance closed", note, ("workload", "HPA J", "policy J", "hindsight J", "closed"), rows)


def seeds_table(result: ResultFile) -> Table:
    """How much the training seed matters; empty for one model."""
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
    return Table("Over training seeds", note, header, rows)


def claims_table(result: ResultFile) -> Table:
    """Earlier research's figures beside those measured here."""
    rows = [
        (
            title(claim.workload),
            claim.quantity,
            claim.against,
            "better" if claim.claimed is None else f"{claim.claimed:.2f}",
            f"{claim.measured:.2f}",
            f"[{claim.low:.2f}, {claim.high:.2f}]",
            claim.finding,
        )
        for claim in result.claims
    ]
    header = ("workload", "quantity", "against", "claimed", "measured", "95 % interval", "finding")
    return Table("Claims of earlier research, measured here", DEFINITION, header, rows, text_columns=3)
