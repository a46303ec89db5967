"""Validation of a network in training: stretches of an hour that no training draws and no report looks at.

The capacities of their services differ from the declared ones, as in training. The rule without the network plays them
too, and the interval of the difference chooses among checkpoints.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from rlscaler_core.decision.rule import Rule
from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.episode import LATE_WEIGHT, Result, run
from rlscaler_rl.simulation.generative import MODEL, LoadModel, draw
from rlscaler_rl.simulation.randomisation import Loads, randomised
from rlscaler_rl.simulation.ranges import RANGES
from rlscaler_rl.simulation.remembered import HOUR, Pool
from rlscaler_rl.simulation.scenario import PAST_SECONDS, Scenarios
from rlscaler_rl.workloads.library import recording
from rlscaler_rl.workloads.names import HELD_OUT, TRACES, Part
from rlscaler_rl.workloads.stretches import StretchLoads

DRAWN = ("drawn", "smooth", "services", "one_pool")
"""Loads of the generative model on the nominal service; without bursts and switches; on all services; on one pool."""

WORKLOADS = (*DRAWN, *(name for name in TRACES if name != HELD_OUT))
"""Each has as many episodes as the others."""

HISTORY_HOURS = 2.0
"""Hours that the services have been there, at most."""

EPISODES = 16
"""Episodes of every workload under every condition."""

ANY = 5
"""Replicas of a pool that an operator may find, at most, where it begins."""

CONDITIONS = ((30.0, 3600, False), (15.0, 3600, False), (30.0, 3600, True))
"""(interval, duration) in seconds, and whether the episodes begin with any replicas instead of those that the load
before needs: a service is as it is when an operator comes to it."""

SMOOTH = replace(MODEL, switching_share=0.0, bursting_share=0.0, job_share=0.0, wander=(0.005, 0.05), empty_share=0.1)
NOMINAL = replace(RANGES, wholly_nominal_share=1.0, one_pool_share=0.0, unknown_past_share=0.0, floor_share=1.0)
RANGES_OF = {"services": replace(RANGES, wholly_nominal_share=0.0), "one_pool": replace(RANGES, one_pool_share=1.0)}


def scenarios(interval: float, duration: int, anyhow: bool) -> Scenarios:
    """(len(WORKLOADS) * EPISODES) rows, workload by workload, of services that are known for `HISTORY_HOURS`."""
    known = known_services(interval, duration)
    if not anyhow:
        return known
    replicas = np.random.default_rng(0).integers(1, ANY + 1, known.initial.shape)
    initial = np.clip(replicas, known.min_replicas, known.max_replicas)
    return replace(known, initial=initial.astype(known.initial.dtype))


@lru_cache(maxsize=len(CONDITIONS))
def known_services(interval: float, duration: int) -> Scenarios:
    """Return the rows with the replicas that the load before needs. Learning their services takes seconds."""
    seconds = int(HISTORY_HOURS * HOUR) + PAST_SECONDS + duration
    days = Scenarios.concat([_days(name, interval, seconds) for name in WORKLOADS])
    rng = np.random.default_rng(0)
    return Pool.of(days, HISTORY_HOURS, duration, 1, rng).take(np.arange(len(days)), duration, rng)


def _days(name: str, interval: float, seconds: int) -> Scenarios:
    # Every load has a stream of its own: adding a workload must not change the others.
    rng = np.random.default_rng([zlib.crc32(name.encode()), 11])
    return randomised(EPISODES, rng, interval, seconds, RANGES_OF.get(name, NOMINAL), _loads(name))


def _loads(name: str) -> Loads:
    if name not in DRAWN:
        return StretchLoads([recording(name)], 1.0, part=Part.TUNE, changed=False)
    model: LoadModel = SMOOTH if name == "smooth" else MODEL
    return lambda n, seconds, rng: draw(n, seconds, rng, model)


def places() -> dict[str, slice]:
    """Where each workload's episodes stand in `scenarios`."""
    return {workload: slice(i * EPISODES, (i + 1) * EPISODES) for i, workload in enumerate(WORKLOADS)}


def validate(actor: Any) -> dict[str, Any]:
    """`mean` {j, cost, late_percent}, the same per workload (`workloads`) and per condition (`settings`), and
    `against_rule` {mean, low, high}: the mean difference of J from the rule's on the same service, in percent of the
    rule's J there, with its 95 % interval.

    Costs are in the price of the nominal service's replicas at the same share of all replicas, as rewards are: one
    service of 64 replicas would otherwise outweigh all others.
    """
    tables: dict[str, dict[str, dict[str, float]]] = {}
    own, of_the_rule = [], []
    for condition in CONDITIONS:
        interval, duration, anyhow = condition
        name = f"{interval:g}s/{duration}s" + (", any replicas" if anyhow else "")
        played = scenarios(interval, duration, anyhow)
        figures = run(played, actor).result
        tables[name] = by_workload(figures, played)
        own.append(nominal_j(figures, played))
        of_the_rule.append(_of_the_rule(condition))
    per_workload = {name: _mean(tables, (name,)) for name in WORKLOADS}
    against = _against(np.mean(own, axis=0), np.mean(of_the_rule, axis=0))
    return {"mean": _mean(tables, WORKLOADS), "workloads": per_workload, "settings": tables, "against_rule": against}


def best_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row of a run's progress whose network is surest to be better than the rule."""
    return min(rows, key=lambda row: row["validation"]["against_rule"]["high"])


@lru_cache(maxsize=len(CONDITIONS))
def _of_the_rule(condition: tuple[float, int, bool]) -> Float:
    played = scenarios(*condition)
    return nominal_j(run(played, Rule()).result, played)


def _against(own: Float, rule: Float) -> dict[str, float]:
    """Return the interval of the mean difference of J (N,) in percent of the rule's, over N services.

    The conditions of a service are averaged before: they share its load. A service is one vote, whatever it costs:
    summed J would be that of the few services that are late for most of an episode under any policy.
    """
    difference = 100 * (own / rule - 1)
    mean, error = float(difference.mean()), float(1.96 * difference.std(ddof=1) / np.sqrt(len(difference)))
    return {"mean": mean, "low": mean - error, "high": mean + error}


def nominal_j(figures: Result, played: Scenarios) -> Float:
    """Return J (N,) at the price of the nominal service, see `validate`."""
    return np.asarray(figures.cost * objectives.norms(played).size + LATE_WEIGHT * figures.late_percent)


def by_workload(figures: Result, played: Scenarios) -> dict[str, dict[str, float]]:
    """Means of J, cost and late share over the rows of each workload in `played`."""
    # `size` is the nominal service's price at full size over this one's: a service of 64 replicas counts like any.
    cost = figures.cost * objectives.norms(played).size
    columns = {"j": cost + LATE_WEIGHT * figures.late_percent, "cost": cost, "late_percent": figures.late_percent}
    return {
        workload: {name: float(column[rows].mean()) for name, column in columns.items()}
        for workload, rows in places().items()
    }


FIGURES = ("j", "cost", "late_percent")


def _mean(tables: dict[str, dict[str, dict[str, float]]], workloads: tuple[str, ...]) -> dict[str, float]:
    rows = [table[workload] for table in tables.values() for workload in workloads]
    return {name: float(np.mean([row[name] for row in rows])) for name in FIGURES}
