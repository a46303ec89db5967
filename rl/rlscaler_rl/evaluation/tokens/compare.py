"""Autoscalers on drawn token services: each is tuned on some of them, and all are judged on others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlscaler_core.decision.types import Float, Params
from rlscaler_rl.evaluation.tokens.contenders import ENTRIES, Entry
from rlscaler_rl.evaluation.tokens.result import Comparison, Row
from rlscaler_rl.evaluation.tuning.search import search
from rlscaler_rl.evaluation.tuning.spaces import Point
from rlscaler_rl.results.document import Progress
from rlscaler_rl.results.statistics import ratio_interval
from rlscaler_rl.simulation.tokens.drawn import TUNED_SEED, World, drawn, plain
from rlscaler_rl.simulation.tokens.episode import TokenResult, params_of, run


def played(entry: Entry, points: Sequence[Point], world: World, params: Params | None = None) -> TokenResult:
    """Play every setting on all services, setting by setting; `params` of policies that are written already."""
    many = world.repeated(len(points))
    demand = many.truth if entry.exact else many.declared
    if entry.plain:
        demand = plain(demand)
    rate = np.zeros((1, 1))
    controller = entry.actor or entry.tunable.controllers(points, rate, len(world.services))
    given = (many.services, many.requests, controller, demand, world.seconds)
    return run(*given, signal=entry.signal, learns=entry.learns, params=params).result


def tuned(entry: Entry, world: World, trials: int) -> Point:
    """Return the settings with the lowest mean J on some services, or the default ones where they are fixed."""
    if entry.fixed:
        return entry.tunable.default

    def j(points: Sequence[Point]) -> Float:
        each = played(entry, points, world).j.reshape(len(points), len(world.services))
        return np.asarray(each.mean(axis=1), np.float64)

    return search(entry.tunable.space, [entry.tunable.default], j, trials)[0].point


def drawn_worlds(services: int, seconds: int, seed: int) -> tuple[World, World]:
    """Return services that settings are chosen on, half as many as those that judge them, and these."""
    return drawn(max(services // 2, 2), seconds, TUNED_SEED + seed), drawn(services, seconds, seed)


def compared(
    worlds: Callable[[], tuple[World, World]],
    load: str,
    trials: int,
    seed: int,
    tell: Progress,
    entries: Sequence[Entry] = ENTRIES,
) -> Comparison:
    """Tune all autoscalers but the fixed ones alike on the first of two worlds, and judge all on the second.

    :param load: name of the requests, for people.
    """
    tell("load tests and requests")
    past, world = worlds()
    results: list[tuple[Entry, Point, TokenResult]] = []
    for entry in entries:
        tell(entry.tunable.label)
        point = tuned(entry, past, trials)
        results.append((entry, point, played(entry, [point], world)))
    rows = [
        row_of(*each, results[0][2], world.seconds).model_copy(update={"outside": _outside(each[0], world)})
        for each in results
    ]
    servers = list(world.servers)
    return Comparison(
        services=len(servers), servers=servers, load=load, seconds=world.seconds, trials=trials, seed=seed, rows=rows
    )


def row_of(entry: Entry, point: Point, result: TokenResult, first: TokenResult, seconds: int) -> Row:
    """Return the row of one autoscaler; `first` is the result that it is compared with."""
    return Row(
        contender=entry.tunable.name,
        label=entry.tunable.label,
        settings={name: round(float(value), 4) for name, value in point.items()},
        j=result.j.round(3).tolist(),
        over_need=round(float(result.over_need.mean()), 4),
        replicas=round(float(result.replicas.mean()), 3),
        late_percent=round(float(result.late_percent.mean()), 3),
        first_p95=round(float(np.nanmean(result.first_p95)), 3),
        token_p95=round(float(np.nanmean(result.token_p95)), 4),
        starts_per_hour=round(float(result.starts.mean() * 3600 / seconds), 2),
        behind=None if result is first else _behind(result.j, first.j),
    )


def _outside(entry: Entry, world: World) -> str | None:
    """Return the text of `Row.outside`, with the reason of the first of these services."""
    if entry.actor is None:
        return None
    manifest = entry.actor.manifest
    outside, reasons = manifest.outside(params_of(world.services, world.declared, entry.signal, entry.learns))
    acts = "the rule acts for them" if manifest.lasting else "the fallback acts for them"
    first = next(filter(None, reasons), None)
    return first and f"{outside.sum()} of {len(outside)} services are outside its envelope ({first}), and {acts}"


def _behind(j: Float, first: Float) -> str:
    # One service has no interval.
    return ratio_interval(j, first).shown(unit=" %") if len(j) > 1 else f"{100 * (j[0] / first[0] - 1):+.1f} %"
