"""`rlscaler estimate` and `rlscaler simulate`: cost and lateness of each autoscaler on a recorded load."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from rlscaler_core.api import RLScalingPolicy, offline
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.days import contenders as who
from rlscaler_rl.evaluation.days.contenders import Contender, Policy
from rlscaler_rl.evaluation.days.hpa_file import read_hpas
from rlscaler_rl.evaluation.days.judged import History, Judged, judged
from rlscaler_rl.evaluation.days.play import Figures, Job, played_side_by_side
from rlscaler_rl.evaluation.days.report import Report, by_cost, rows_of
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.service_tuning.service import read_policy
from rlscaler_rl.simulation.batch import SENSE_SECONDS

TRIALS = 40

DRAWN = ("ppo", "policy", "rule", "hpa", "hpa_tuned", "static")
"""Contenders that the picture shows."""

Progress = Callable[[str], None]


def estimated(history: History, policy: Path | None, out: Path, progress: Progress) -> Report:
    """Play the judged days of a history with every contender and write `estimate.json` and `day.png` into `out`.

    :raises EvaluationError: naming the file or the object, the field and the remedy.
    """
    began = time.monotonic()
    days = judged(history, None if policy is None else read_policy(policy), progress)
    # The search takes seconds to import, and a wrong input is refused before.
    from rlscaler_rl.evaluation.days.past import cheapest_static, tuned

    past = days.past()
    entries = who.untuned([Policy("ppo", "Bundled network", partial(load_bundled, "ppo"))])
    progress("best constant replicas of the past")
    entries.append(cheapest_static(past).on(days.load.name))
    progress("HPA, tuned on the past")
    entries.append(tuned("hpa", past, trials=TRIALS).on(days.load.name))
    report, _ = _played(days, entries, out / "estimate.json", progress)
    rows = by_cost(report.rows, report.objective_percent)
    return _saved(report.model_copy(update={"rows": rows}), began)


def simulated(
    history: History, policy: Path, model: Path | None, hpa: Path | None, out: Path, progress: Progress
) -> Report:
    """Play the judged days of a history with a policy and autoscalers; write `simulate.json` and `day.png` into `out`.

    :param model: folder or file of a network that the policy takes from a ConfigMap or a path.
    :param hpa: YAML of the HPAs that scale the targets now.
    :raises EvaluationError: naming the file or the object, the field and the remedy.
    """
    began = time.monotonic()
    try:
        parsed = offline.read_object(policy)[1]
    except ValueError as error:
        raise EvaluationError(str(error)) from error
    actor = _actor(parsed, model)
    autoscalers = who.autoscalers()
    if hpa is not None:
        autoscalers[0] = Contender(
            "hpa", "HPA as it is", "untuned", who.Afresh(partial(Hpa, read_hpas(hpa, parsed.spec)))
        )
    days = judged(history, offline.about(parsed), progress, tuned=False)
    entries = [Contender(actor.name, actor.label, "policy", actor), *autoscalers]
    report, figures = _played(days, entries, out / "simulate.json", progress)
    ticks = len(days.days.loads) * days.load.length / SENSE_SECONDS
    guards = {name: float(100 * np.sum(count) / ticks) for name, count in figures[0].acted.items() if np.any(count)}
    return _saved(report.model_copy(update={"guards": guards}), began)


def _played(
    days: Judged, entries: Sequence[Contender], file: Path, progress: Progress
) -> tuple[Report, Sequence[Figures]]:
    """Play all entries and the hindsight rule on the same days, and draw the last day."""
    # The picture takes a second to import, and a wrong input is refused before.
    from rlscaler_rl.evaluation.days.picture import draw_day

    entries = [*entries, who.hindsight()]
    progress(f"{len(entries)} autoscalers on {days.length_days:.3g} days")
    # Points of a timeline take memory, so only the contenders of the picture record one.
    jobs = [Job(entry.make, timeline=SENSE_SECONDS if entry.name in DRAWN else 0) for entry in entries]
    figures = played_side_by_side(days.days, jobs, done=lambda number: progress(entries[number].label))
    file.parent.mkdir(parents=True, exist_ok=True)
    progress("the picture")
    drawn = [(entry, one) for entry, one in zip(entries, figures, strict=True) if one.timeline]
    draw_day(days.title(), drawn, file.with_name("day.png"))
    results = [(entry, one.result) for entry, one in zip(entries, figures, strict=True)]
    report = Report(
        service=days.service.name,
        rows=rows_of(results, days),
        objective_percent=days.service.late_allowed,
        judged_days=days.length_days,
        notes=days.notes(),
        picture=file.with_name("day.png"),
        file=file,
        seconds=0.0,
    )
    return report, figures


def _saved(report: Report, began: float) -> Report:
    report = report.model_copy(update={"seconds": round(time.monotonic() - began, 1)})
    report.save()
    return report


def _actor(policy: RLScalingPolicy, model: Path | None) -> Policy:
    """Return the network or rule of a policy: the bundled one that it names, or the one in `model`."""
    source, bundled = policy.spec.policy, policy.spec.bundled_policy
    if model is not None:
        loaded = models.load(str(model), Path())
        again = partial(models.actor_again, loaded.source, loaded.digest)
        return Policy("policy", f"this policy ({loaded.name})", again)
    if bundled is None:
        field = "configMap" if source.config_map is not None else "path"
        raise EvaluationError(
            f"RLScalingPolicy {policy.metadata.namespace or 'default'}/{policy.metadata.name}: spec.policy.{field} "
            "names a network that is not here: name its folder or ONNX file with --model"
        )
    return Policy("policy", f"this policy ({bundled})", partial(load_bundled, bundled))
