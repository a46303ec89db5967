"""`rlscaler estimate`: what each autoscaler would have cost on a load that was recorded, without any training."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rlscaler_core.models import load_bundled
from rlscaler_rl.evaluation.days import contenders as who
from rlscaler_rl.evaluation.days.play import played
from rlscaler_rl.evaluation.days.report import Report, Row, judged, row_of
from rlscaler_rl.evaluation.service_tuning.service import read_policy
from rlscaler_rl.simulation.batch import SENSE_SECONDS

TRIALS = 40

DRAWN = ("ppo", "rule", "hpa", "hpa_tuned", "static")
"""Contenders that the picture shows."""


def estimated(
    history: Path, policy: Path | None, scrape_seconds: int, out: Path, progress: Callable[[str], None]
) -> Report:
    """Play the judged days of a history with every contender and write `estimate.json` and `day.png` into `out`.

    Raises EvaluationError naming the file or the object, the field and the remedy.
    """
    began = time.monotonic()
    found = judged(history, None if policy is None else read_policy(policy), scrape_seconds, progress)
    # What searches and draws takes seconds to import, and nothing that is wrong waits for it.
    from rlscaler_rl.evaluation.days.past import cheapest_static, tuned
    from rlscaler_rl.evaluation.days.picture import draw_day

    tune = found.past()
    entries = [*who.untuned([who.Policy("ppo", "Bundled network", partial(load_bundled, "ppo"))])]
    progress("best constant replicas of the past")
    entries.append(cheapest_static(tune).on(found.load.name))
    progress("HPA, tuned on the past")
    entries.append(tuned("hpa", tune, trials=TRIALS).on(found.load.name))
    runs = []
    for entry in entries:
        progress(entry.label)
        runs.append((entry, played(found.days, entry.make, timeline=SENSE_SECONDS if entry.name in DRAWN else 0)))
    out.mkdir(parents=True, exist_ok=True)
    progress("the picture")
    drawn = [(entry, run) for entry, run in runs if entry.name in DRAWN]
    draw_day(found.days, found.title(history), drawn, out / "day.png")
    report = Report(
        service=found.service.name,
        rows=_ordered([row_of(entry, run.result, found) for entry, run in runs], found.service.late_allowed),
        objective_percent=found.service.late_allowed,
        judged_days=found.length_days,
        notes=found.notes(),
        picture=out / "day.png",
        file=out / "estimate.json",
        seconds=round(time.monotonic() - began, 1),
    )
    report.save()
    return report


def _ordered(rows: Sequence[Row], late_allowed: float) -> list[Row]:
    """The cheapest of those whose lateness is within the objective first, then the others by lateness."""
    within = [row for row in rows if row.late_percent <= late_allowed]
    beyond = [row for row in rows if row.late_percent > late_allowed]
    return sorted(within, key=lambda row: row.cost_per_month) + sorted(beyond, key=lambda row: row.late_percent)
