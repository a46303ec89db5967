"""`rlscaler simulate`: what one policy would have done on a recorded load, beside the HPA as it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rlscaler_core.api import RLScalingPolicy, offline
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.days.contenders import Contender
from rlscaler_rl.evaluation.days.hpa_file import read_hpas
from rlscaler_rl.evaluation.days.play import played
from rlscaler_rl.evaluation.days.report import Report, judged, row_of
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.simulation.batch import SENSE_SECONDS


class Simulation(Report):
    """The policy first, then the HPA."""

    guards: dict[str, float]
    """Share of the sensing ticks, in %, at which each guard acted that acted at all, by its name."""

    @property
    def in_time(self) -> bool:
        """Does the policy keep its objective?"""
        return self.rows[0].late_percent <= self.objective_percent

    def sentences(self) -> list[str]:
        """What the figures come to, in words."""
        policy, hpa = self.rows
        saved = 100 * (1 - policy.cost_per_month / hpa.cost_per_month) if hpa.cost_per_month else float("nan")
        kept = "keeps" if self.in_time else "misses"
        said = [
            f"The policy {kept} its objective ({self.objective_percent:.3g} % may be late) at "
            f"{abs(saved):.0f} % {'less' if saved >= 0 else 'more'} cost than the HPA."
        ]
        acted = ", ".join(f"{name} {percent:.2g} %" for name, percent in self.guards.items())
        return [*said, f"Guards that acted, in % of the sensing ticks: {acted or 'none'}."]


def simulated(
    history: Path,
    policy: Path,
    model: Path | None,
    hpa: Path | None,
    scrape_seconds: int,
    out: Path,
    progress: Callable[[str], None],
) -> Simulation:
    """Play the judged days of a history with the policy and the HPA; write `simulate.json` and `day.png` into `out`.

    `model` is the folder or file of a network that the policy takes from a ConfigMap or a path. Raises EvaluationError
    naming the file or the object, the field and the remedy.
    """
    began = time.monotonic()
    parsed = _read(policy)
    actor, called = _actor(parsed, model)
    settings = read_hpas(hpa, parsed.spec) if hpa is not None else None
    found = judged(history, offline.about(parsed), scrape_seconds, progress, tuned=False)
    # What draws takes a second to import, and nothing that is wrong waits for it.
    from rlscaler_rl.evaluation.days.picture import draw_day

    entries = [
        Contender("policy", f"this policy ({called})", "policy", lambda rate: actor),
        Contender("hpa", "HPA as it is" if settings else "HPA 80 %", "untuned", lambda rate: Hpa(settings)),
    ]
    rows, runs, guards = [], [], {}
    for entry in entries:
        progress(entry.label)
        run = played(found.days, entry.make, timeline=SENSE_SECONDS)
        runs.append((entry, run))
        rows.append(row_of(entry, run.result, found))
        if entry.name == "policy":
            ticks = len(found.days.loads) * found.load.length / SENSE_SECONDS
            guards = {name: float(100 * np.sum(count) / ticks) for name, count in run.acted.items() if np.any(count)}
    out.mkdir(parents=True, exist_ok=True)
    progress("the picture")
    draw_day(found.days, found.title(history), runs, out / "day.png")
    report = Simulation(
        service=found.service.name,
        rows=rows,
        objective_percent=found.service.late_allowed,
        judged_days=found.length_days,
        notes=found.notes(),
        picture=out / "day.png",
        file=out / "simulate.json",
        seconds=round(time.monotonic() - began, 1),
        guards=guards,
    )
    report.save()
    return report


def _read(policy: Path) -> RLScalingPolicy:
    try:
        return offline.read_object(policy)[1]
    except ValueError as error:
        raise EvaluationError(str(error)) from error


def _actor(policy: RLScalingPolicy, model: Path | None) -> tuple[ActorLike, str]:
    """What decides, and its name."""
    source = policy.spec.policy
    if model is not None:
        loaded = models.load(str(model), Path())
        return loaded.actor, loaded.name
    if source.bundled_name is None:
        field = "configMap" if source.config_map is not None else "path"
        raise EvaluationError(
            f"RLScalingPolicy {policy.metadata.namespace or 'default'}/{policy.metadata.name}: spec.policy.{field} "
            "names a network that is not here: name its folder or ONNX file with --model"
        )
    return load_bundled(source.bundled_name), source.bundled_name
