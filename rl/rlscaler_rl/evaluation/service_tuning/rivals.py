"""Rivals of the fine-tuned policy on the service's held-back part, and the tuning of those that can be tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.models import load_bundled
from rlscaler_rl.baselines.contender import cheapest_mix
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.evaluation.board import POLICY
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.lineup import Entry, unscaled
from rlscaler_rl.evaluation.service_tuning.episodes import Score
from rlscaler_rl.evaluation.service_tuning.networks import GENERAL
from rlscaler_rl.evaluation.service_tuning.service import UTILIZATION, Service
from rlscaler_rl.evaluation.service_tuning.spec import OWN, settings_of, under
from rlscaler_rl.evaluation.tuning.cache import record_of
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, Tunable
from rlscaler_rl.evaluation.tuning.spaces import Point
from rlscaler_rl.evaluation.tuning.tune import Best, best_settings
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios

POLICY_SPEC, GENERAL_SPEC = "policy_spec", "general_spec"
"""The same networks under the recommended spec."""

TUNED = {"hpa": "HPA, tuned for this service", "rule": "Forecast rule, tuned for it"}
"""Contender -> label. They are searched for this service on its tune part; the gate asks for more than they give."""


def tune(
    name: str,
    draws: tuple[Scenarios, Scenarios],
    score: Score,
    level: LevelName,
    *,
    budget: int,
    finalists: int,
    seed: int,
) -> Best:
    """Search the settings of a rival as all contenders are tuned, and judge the best at `level` beside the starts.

    It starts from the default and from the settings tuned for all loads, where these are current. The action interval
    is the service's, as the policy's is.

    :param draws: episodes of the tune part for the search, and others with different arrivals and cold starts to judge.
    """
    tunable, own = _at_the_services_interval(CONTENDERS[name], float(draws[0].interval_seconds[0]))
    known = [{key: point[key] for key in tunable.space} for point in _tuned_for_all(name)]
    best = best_settings(
        tunable,
        [tunable.default, *known],
        known,
        draws,
        budget=budget,
        finalists=finalists,
        level=level,
        score=score.j,
        seed=seed,
    )
    return replace(best, point=best.point | own)


def _at_the_services_interval(tunable: Tunable, interval: float) -> tuple[Tunable, Point]:
    """The contender without an interval in its space, and the interval as a setting."""
    if "interval" not in tunable.space:
        return tunable, {}
    own: Point = {"interval": interval}
    space, default = ({k: v for k, v in part.items() if k != "interval"} for part in (tunable.space, tunable.default))
    return replace(
        tunable, space=space, default=default, settings=lambda point: tunable.settings({**point, **own})
    ), own


def _tuned_for_all(name: str) -> list[Point]:
    """The settings tuned for all loads, where the cache is current; without them the default alone is the start."""
    try:
        return [record_of(name).found]
    except EvaluationError:
        return []


def rivals(
    service: Service,
    fine_tuned: ActorLike,
    general: ActorLike,
    tuned: Mapping[str, Best],
    peak_rps: float,
    recommended: Point = OWN,
) -> list[Entry]:
    """Return the policy first, then all rivals.

    The networks run under the user's own spec, and again under a recommended one that changes anything.

    :param peak_rps: requests/s that fixed replicas are sized for.
    """
    gpu, cpu = map(int, cheapest_mix(service.params, np.array([peak_rps / UTILIZATION]))[0])
    today = service.replicas
    hindsight = CONTENDERS["hindsight"]
    listed = [
        Entry(POLICY, "Policy for this service", "policy", lambda rate, seed: fine_tuned),
        *(_tuned_entry(name, tuned[name].point) for name in TUNED),
        Entry(GENERAL, _label(service, general), "contender", lambda rate, seed: general),
        Entry("rule", "Forecast rule", "contender", lambda rate, seed: load_bundled("rule")),
        Entry("hpa", "HPA default (80 %)", "contender", lambda rate, seed: Hpa()),
        Entry("static_peak", f"Static for the peak ({gpu}+{cpu})", "contender", unscaled, (gpu, cpu)),
        Entry(
            "hindsight", "Hindsight rule", "reference", lambda rate, seed: hindsight.controller(hindsight.default, rate)
        ),
    ]
    if today is not None:
        listed.insert(3, Entry("static_today", f"Static, as today ({today[0]}+{today[1]})", "today", unscaled, today))
    if recommended:
        spec = settings_of(recommended)
        at = [entry.name for entry in listed].index(GENERAL) + 1
        label = "General policy, recommended spec"
        listed.insert(at, Entry(GENERAL_SPEC, label, "spec", lambda rate, seed: under(general, spec)))
        label = "Policy, recommended spec"
        listed.insert(1, Entry(POLICY_SPEC, label, "spec", lambda rate, seed: under(fine_tuned, spec)))
    return listed


def _tuned_entry(name: str, point: Point) -> Entry:
    return Entry(f"{name}_tuned", TUNED[name], "tuned", lambda rate, seed: CONTENDERS[name].controller(point, rate))


def _label(service: Service, general: ActorLike) -> str:
    outside = general.manifest.mask(service.params)[0]
    return "General policy (outside its envelope: its rule)" if outside else "General policy"
