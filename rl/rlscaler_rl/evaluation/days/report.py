"""Cost and lateness of each autoscaler on the judged days of a load: the rows, the table and the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlscaler_rl.evaluation.days.contenders import Contender
from rlscaler_rl.evaluation.days.judged import Judged
from rlscaler_rl.results.document import Document
from rlscaler_rl.results.table import Table
from rlscaler_rl.simulation.episode import Result
from rlscaler_rl.simulation.scenario import HOURS_PER_MONTH


class Row(Document):
    """Figures of one autoscaler on the judged days."""

    contender: str
    label: str
    role: str
    j: float
    """Mean of cost plus half a GPU replica for each percent of late requests; lower is better."""

    above_hindsight_percent: float | None
    """J over that of the hindsight rule, minus 1, in %; None for that rule itself."""

    gpu_hours_per_day: float
    cpu_hours_per_day: float
    gpu_starts_per_day: float
    """GPU pods that were started."""

    cpu_starts_per_day: float
    cost_per_month: float
    """In the currency of `costPerHour`, for months like the judged days."""

    late_percent: float
    worst_day_late_percent: float


COLUMNS = {
    "autoscaler": "{0.label}",
    "J": "{0.j:.2f}",
    "% above hindsight": "{0.above_hindsight_percent:+.1f}",
    "GPU h a day": "{0.gpu_hours_per_day:.1f}",
    "CPU h a day": "{0.cpu_hours_per_day:.1f}",
    "starts a day": "{0.gpu_starts_per_day:.0f}+{0.cpu_starts_per_day:.0f}",
    "cost a month": "{0.cost_per_month:,.0f}",
    "late %": "{0.late_percent:.2f}",
    "worst day %": "{0.worst_day_late_percent:.2f}",
}


class Report(Document):
    """Figures of all autoscalers on the judged days of a load."""

    service: str
    rows: list[Row]
    """In the order in which they are shown; the first one stands out."""

    objective_percent: float
    """Share of the requests, in %, that may be late."""

    judged_days: float
    notes: list[str]
    picture: Path
    file: Path
    seconds: float
    guards: dict[str, float] | None = None
    """Share of the sensing ticks, in %, at which each guard of the policy acted that acted at all; None without one."""

    @property
    def in_time(self) -> bool:
        """Whether the autoscaler in the first row keeps the objective."""
        return self.rows[0].late_percent <= self.objective_percent

    def save(self) -> None:
        self.file.write_text(self.json_text() + "\n", encoding="utf-8")

    def table(self) -> Table:
        """Return the rows for a terminal."""
        title = f"{self.service}: {self.judged_days:.3g} days judged"
        return Table.of(COLUMNS, self.rows, title, bold_first=True)

    def sentences(self) -> list[str]:
        """Return the comparison of a policy with the HPA, and its guards, in words."""
        if self.guards is None:
            return []
        policy, hpa = self.rows[0], next(row for row in self.rows if row.contender == "hpa")
        saved = 100 * (1 - policy.cost_per_month / hpa.cost_per_month) if hpa.cost_per_month else float("nan")
        acted = ", ".join(f"{name} {percent:.2g} %" for name, percent in self.guards.items())
        return [
            f"The policy {'keeps' if self.in_time else 'misses'} its objective ({self.objective_percent:.3g} % may be "
            f"late) at {abs(saved):.0f} % {'less' if saved >= 0 else 'more'} cost than the HPA.",
            f"Guards that acted, in % of the sensing ticks: {acted or 'none'}.",
        ]


def rows_of(played: Sequence[tuple[Contender, Result]], judged: Judged) -> list[Row]:
    """Return a row for each contender; J is compared with the only one in the role `reference`."""
    known = next(float(result.j.mean()) for entry, result in played if entry.role == "reference")
    return [_row(entry, result, judged, None if entry.role == "reference" else known) for entry, result in played]


def by_cost(rows: Sequence[Row], late_allowed: float) -> list[Row]:
    """Return the cheapest within the objective first, then the others by lateness, references last."""

    def key(row: Row) -> tuple[bool, bool, float]:
        late = row.late_percent > late_allowed
        return row.role == "reference", late, row.late_percent if late else row.cost_per_month

    return sorted(rows, key=key)


def _row(entry: Contender, result: Result, judged: Judged, known: float | None) -> Row:
    gpu, cpu = (float(values.mean() / 3600) for values in (result.gpu_replica_seconds, result.cpu_replica_seconds))
    a_day = 86_400 / judged.load.length
    # Requests that were answered late, dropped or left waiting are late alike.
    missed, requests, j = result.requests - result.in_time, result.requests.sum(), float(result.j.mean())
    return Row(
        contender=entry.name,
        label=entry.label,
        role=entry.role,
        j=j,
        above_hindsight_percent=100 * (j / known - 1) if known else None,
        gpu_hours_per_day=gpu * a_day,
        cpu_hours_per_day=cpu * a_day,
        gpu_starts_per_day=float(result.gpu_starts.mean()) * a_day,
        cpu_starts_per_day=float(result.cpu_starts.mean()) * a_day,
        cost_per_month=float(result.cost.mean()) * judged.service.gpu_cost_per_hour * HOURS_PER_MONTH,
        late_percent=float(100 * missed.sum() / max(requests, 1.0)),
        worst_day_late_percent=float(result.late_percent.max()),
    )
