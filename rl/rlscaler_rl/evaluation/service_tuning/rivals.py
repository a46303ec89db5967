"""Who the fine-tuned policy meets on the service's held-back part, tuned where tuning is theirs to have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rlscaler_core.decision.actor import ActorLike, load_bundled
from rlscaler_rl.baselines.contender import Contender, cheapest_mix
from rlscaler_rl.baselines.hpa import Hpa
from rlscaler_rl.baselines.simple import Unscaled
from rlscaler_rl.evaluation.service_tuning.score import UTILIZATION, Score
from rlscaler_rl.evaluation.service_tuning.service import Service
from rlscaler_rl.evaluation.service_tuning.spec import OWN, settings_of, under
from rlscaler_rl.evaluation.tuning.cache import record_of
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS, Tunable
from rlscaler_rl.evaluation.tuning.errors import TuningError
from rlscaler_rl.evaluation.tuning.score import scores
from rlscaler_rl.evaluation.tuning.search import search
from rlscaler_rl.evaluation.tuning.spaces import Found
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios

POLICY = "policy"
GENERAL = "general"
POLICY_SPEC, GENERAL_SPEC = "policy_spec", "general_spec"
"""The same networks under the recommended spec."""

TUNED = ("hpa", "rule")
"""Searched for this service on its tune part; the gate asks for more than they give."""

Controller = Contender | ActorLike


@dataclass(frozen=True, slots=True)
class Rival:
    """One row of the table."""

    name: str
    label: str
    role: str
    """`policy`, `spec` (a network under the recommended spec), `tuned`, `today`, `contender` or `reference`."""

    make: Callable[[Scenarios], Controller]
    replicas: tuple[int, int] | None = None
    """Kept from the first second to the last, by whoever does not scale."""


@dataclass(frozen=True, slots=True)
class Searched:
    """What a search found on the tune part."""

    name: str
    found: Found
    j: float
    default_j: float
    trials: int


def tune(
    name: str,
    draws: tuple[Scenarios, Scenarios],
    score: Score,
    judge: LevelName,
    *,
    budget: int,
    finalists: int,
    seed: int,
) -> Searched:
    """Search at the fluid level, judge the best at `judge` beside where it started; as all contenders are tuned.

    `draws`: from the tune part, what the search sees and, with other arrivals and cold starts, what judges.
    It starts from the default and from the settings tuned for all loads, where these are current. The action interval
    is the service's, as the policy's is.
    """
    screening, judged = draws
    tunable, own = _at_the_services_interval(CONTENDERS[name], float(screening.interval_seconds[0]))
    starts = [tunable.default, *({key: found[key] for key in tunable.space} for found in _tuned_for_all(name))]
    trials = search(
        tunable.space,
        starts,
        lambda found: scores(tunable, found, screening, "fluid", score.j).mean(axis=1),
        budget,
        seed,
    )
    last = [*starts, *(trial.found for trial in trials[:finalists])]
    j = scores(tunable, last, judged, judge, score.j).mean(axis=1)
    best = int(np.argmin(j))
    return Searched(name, last[best] | own, float(j[best]), float(j[0]), len(trials))


def _at_the_services_interval(tunable: Tunable, interval: float) -> tuple[Tunable, Found]:
    """With nothing to be set of the interval, and what that leaves out of the settings."""
    if "interval" not in tunable.space:
        return tunable, {}
    own: Found = {"interval": interval}
    space, default = ({k: v for k, v in one.items() if k != "interval"} for one in (tunable.space, tunable.default))
    return replace(
        tunable, space=space, default=default, settings=lambda found: tunable.settings({**found, **own})
    ), own


def _tuned_for_all(name: str) -> list[Found]:
    """Where the cache is current; without it the search starts from the default alone."""
    try:
        return [record_of(name).found]
    except TuningError:
        return []


def rivals(
    service: Service,
    tailored: ActorLike,
    general: ActorLike,
    searched: Sequence[Searched],
    peak_rps: float,
    recommended: Found = OWN,
) -> list[Rival]:
    """The policy first, then everybody it meets. `peak_rps`: what fixed replicas are sized for.

    The networks run under the user's own spec, and again under a recommended one that changes anything.
    """
    sized = cheapest_mix(service.params, np.array([peak_rps / UTILIZATION]))[0]
    today = service.replicas
    found = {one.name: one for one in searched}
    listed = [
        Rival(POLICY, "Policy for this service", "policy", lambda rows: tailored),
        Rival("hpa_tuned", "HPA, tuned for this service", "tuned", _tuned(found["hpa"])),
        Rival("rule_tuned", "Forecast rule, tuned for it", "tuned", _tuned(found["rule"])),
        Rival(GENERAL, _label(service, general), "contender", lambda rows: general),
        Rival("rule", "Forecast rule", "contender", lambda rows: load_bundled("rule")),
        Rival("hpa", "HPA default (80 %)", "contender", lambda rows: Hpa()),
        Rival("static_peak", f"Static for the peak ({sized[0]}+{sized[1]})", "contender", _still, _pair(sized)),
        Rival("hindsight", "Hindsight rule", "reference", _hindsight),
    ]
    if today is not None:
        listed.insert(3, Rival("static_today", f"Static, as today ({today[0]}+{today[1]})", "today", _still, today))
    if recommended:
        spec = settings_of(recommended)
        at = [rival.name for rival in listed].index(GENERAL) + 1
        label = "General policy, recommended spec"
        listed.insert(at, Rival(GENERAL_SPEC, label, "spec", lambda rows: under(general, spec)))
        label = "Policy, recommended spec"
        listed.insert(1, Rival(POLICY_SPEC, label, "spec", lambda rows: under(tailored, spec)))
    return listed


def _tuned(one: Searched) -> Callable[[Scenarios], Controller]:
    return lambda rows: CONTENDERS[one.name].controller(one.found, rows.rate.astype(np.float64))


def _still(rows: Scenarios) -> Controller:
    return Unscaled()


def _hindsight(rows: Scenarios) -> Controller:
    tunable = CONTENDERS["hindsight"]
    return tunable.controller(tunable.default, rows.rate.astype(np.float64))


def _pair(mix: np.ndarray) -> tuple[int, int]:
    return int(mix[0]), int(mix[1])


def _label(service: Service, general: ActorLike) -> str:
    outside = general.manifest.mask(service.params)[0]
    return "General policy (outside its envelope: held)" if outside else "General policy"
