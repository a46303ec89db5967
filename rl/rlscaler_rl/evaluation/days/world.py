"""Days in every setting of a world, ready to be played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.baselines.contender import cheapest_mix
from rlscaler_rl.evaluation.days.play import INITIAL_UTILIZATION, Days, prepared
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.days.setting import Setting, World
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios, scraped_every, start_seconds

ROOM = 2
"""Most replicas in the uncertain world over those of the nominal service: at -40 % busy hours need as many again."""


def prepared_in(world: World, chosen: Sequence[tuple[ServiceLoad, int]], **service: Any) -> Days:
    """Prepare days (load, number) of one length in every setting of the world, row by row."""
    rows = [
        (pair, setting) for place, pair in enumerate(chosen) for setting in world.settings(pair[0].by_second, place)
    ]
    settings = tuple(setting for _, setting in rows)
    if world.exact:
        return replace(prepared(chosen, **service), settings=settings)
    # Capacity is no part of what a forecaster learns, so each past is learned once for all errors.
    keys = [(id(load), number, setting.pools, setting.scrape) for (load, number), setting in rows]
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    distinct = sorted(first.values())
    own = [settings[row] for row in distinct]
    days = prepared([rows[row][0] for row in distinct], **{**_columns(own), **service})
    days = days.take(np.array([distinct.index(first[key]) for key in keys]))
    return replace(days, scenarios=_uncertain(world, days.scenarios, settings), settings=settings, own_metrics=True)


def _columns(settings: Sequence[Setting]) -> dict[str, Any]:
    """Return the columns of `Scenarios` in which the settings differ from the nominal service, errors left out."""
    both = np.array([setting.pools == "both" for setting in settings])
    most = ROOM * np.array(NOMINAL["max_replicas"])
    cold = np.add(NOMINAL["cold_start_low"], NOMINAL["cold_start_high"]) / 2
    scraped = [scraped_every(setting.scrape) for setting in settings]
    return {
        "present": np.stack([np.ones(len(both), np.bool_), both], axis=1),
        "min_replicas": np.stack([np.ones(len(both)), both], axis=1),
        "max_replicas": np.stack([np.full(len(both), most[0]), most[1] * both], axis=1),
        "schedulable": 2 * most,
        "start_seconds": start_seconds(cold),
        **{name: np.array([columns[name] for columns in scraped]) for name in scraped[0]},
    }


def _uncertain(world: World, scenarios: Scenarios, settings: Sequence[Setting]) -> Scenarios:
    """Return the scenarios with the true capacity of their settings, and the replicas that the load before needs."""
    n = len(settings)

    def pairs(values: Sequence[float]) -> Float:
        return np.repeat(np.array(values, np.float64)[:, None], 2, axis=1)

    moved = replace(
        scenarios,
        rps=scenarios.believed_rps * pairs([1 + setting.error for setting in settings]),
        drift=pairs([setting.drift for setting in settings]),
        fall=pairs([world.fall] * n),
    )
    params = moved.params()
    params.requests_per_second[:] = moved.true_rps(np.arange(n), np.zeros(n, np.int64))
    moved.initial[...] = cheapest_mix(params, moved.past_rate / INITIAL_UTILIZATION)
    return moved
