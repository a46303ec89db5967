"""Days in every setting of a world, ready to be played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlscaler_rl.evaluation.days.play import Days, prepared
from rlscaler_rl.evaluation.days.service_load import ServiceLoad
from rlscaler_rl.evaluation.days.setting import Setting, World
from rlscaler_rl.simulation.scenario import NOMINAL, scraped_every, start_seconds
from rlscaler_rl.workloads.uncertain import with_capacity

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
    errors, drift = (np.array([getattr(setting, name) for setting in settings]) for name in ("error", "drift"))
    return replace(days, scenarios=with_capacity(days.scenarios, errors, drift, world.fall), settings=settings)


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
        "own_scrape": NOMINAL["scrape"],
        **{name: np.array([columns[name] for columns in scraped]) for name in scraped[0]},
    }
