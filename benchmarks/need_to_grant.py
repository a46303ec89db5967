"""How long it takes from the second at which a tenant needs a GPU to the grant of it, where GPUs are idle.

python -m benchmarks.need_to_grant [--pools 16] [--tenants 8] [--hours 2] [--tightness 0.8] [--out FILE]

Pools of tenants are played under the forecast rule and weighted max-min. A need begins in the second in which the load
needs more GPUs, at the utilization that is aimed at, than its tenant is granted. It counts where the pool has enough
free GPUs for it, and where the load stays as high until the grant. All time is simulated. One part is the time until so
many GPUs are asked for, which includes the wait for the next tick; the other is the time from there to the grant.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from rlscaler_core.decision.decide import decide_at
from rlscaler_core.decision.types import GPU, Decision, Float, Params, Samples, State
from rlscaler_core.models import load_bundled
from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_rl.simulation.batch import SENSE_SECONDS
from rlscaler_rl.tenants.draw import Drawn, Request, draw
from rlscaler_rl.tenants.pools import Pools


class Courses(NamedTuple):
    """What N tenants asked for and were granted at each of T ticks."""

    asked: Float  # (T, N) GPUs
    granted: Float  # (T, N)


class Wait(NamedTuple):
    """One need that was answered, in seconds."""

    tick: float
    """Time that passes from the need to the next tick."""
    asked: float
    """Time that passes from the need to the tick at which so many GPUs were asked for."""
    granted: float
    """Time that passes from the need to the tick at which they were granted."""


def courses(drawn: Drawn) -> Courses:
    """Play the pools of a draw."""
    actor = load_bundled("rule")
    pools = Pools(drawn.scenarios, drawn.tenants, drawn.gpus, actor.manifest.contract)
    asked, granted = [], []

    def decide(params: Params, state: State, samples: Samples, rows: Any) -> tuple[Decision, State]:
        decision, _, after = decide_at("action" if pools.acts else "floor", params, state, samples, actor)
        return decision, after

    while pools.second < int(drawn.scenarios.duration[0]):
        if pools.acts:
            pools.begin_interval()
        pools.decide(decide, pools.batch.sense(latency=pools.acts), "MaxMinFair")
        asked.append(pools.asked.copy())
        granted.append(pools.loans.granted.astype(float))
        pools.advance()
    return Courses(np.array(asked), np.array(granted))


def waits(need: Float, asked: Float, granted: Float, free: Float) -> list[Wait]:
    """Give the waits of one tenant.

    `need` has the GPUs that its load needs in each second; the others are (T,), one value a tick. `free` are the GPUs
    of its pool that no tenant is granted.
    """
    found = []
    in_force = np.repeat(granted, SENSE_SECONDS)
    short = need > in_force
    for second in np.flatnonzero(short & ~np.r_[True, short[:-1]]).tolist():
        number, tick = need[second], -(-second // SENSE_SECONDS)
        if number - in_force[second] > free[second // SENSE_SECONDS]:
            continue
        goes = np.flatnonzero(need[second:] < number)
        until = second + int(goes[0]) if goes.size else len(need)
        answered = np.flatnonzero(granted[tick:] >= number)
        if answered.size and (tick + answered[0]) * SENSE_SECONDS < until:
            first_asked = int(np.flatnonzero(asked[tick:] >= number)[0])
            times = (tick, tick + first_asked, tick + int(answered[0]))
            found.append(Wait(*(float(at * SENSE_SECONDS - second) for at in times)))
    return found


def measured(drawn: Drawn) -> list[Wait]:
    """Play the pools of a draw and give the waits of all tenants."""
    scenarios, played = drawn.scenarios, courses(drawn)
    each = scenarios.rps[:, GPU] * scenarios.target_utilization
    need = np.clip(np.ceil(scenarios.rate / each[:, None]), 1, scenarios.max_replicas[:, GPU][:, None])
    pool = drawn.tenants.pool
    taken = np.stack([np.bincount(pool, row, len(drawn.gpus)) for row in played.granted])
    free = drawn.gpus - taken
    return [
        wait
        for row in range(len(pool))
        for wait in waits(need[row], played.asked[:, row], played.granted[:, row], free[:, pool[row]])
    ]


@click.command()
@click.option("--pools", default=16, show_default=True)
@click.option("--tenants", default=8, show_default=True)
@click.option("--hours", default=2, show_default=True)
@click.option("--tightness", default=0.8, show_default=True)
@out_option
def main(pools: int, tenants: int, hours: int, tightness: float, out: Path | None) -> None:
    """Measure and print one line for each part of the wait."""
    found = np.array(measured(draw(Request(tenants, pools, hours, tightness))))
    tick, asked, granted = found.T
    parts = {
        "need to next tick": tick,
        "need to asked": asked,
        "asked to granted": granted - asked,
        "need to granted": granted,
    }
    rows = {
        name: dict(zip(("p50", "p95"), np.percentile(part, (50, 95)).tolist(), strict=True))
        for name, part in parts.items()
    }
    click.echo(f"{len(found)} needs, {pools} pools of {tenants} tenants, {hours} hours, tightness {tightness:g}")
    for name, row in rows.items():
        click.echo(f"{name}: p50 {row['p50']:.1f} s, p95 {row['p95']:.1f} s")
    write(out, {"machine": machine(), "needs": len(found), "seconds": rows})


if __name__ == "__main__":
    main()
