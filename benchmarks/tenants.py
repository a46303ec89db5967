"""How long an update of agents that share a pool takes, and how long a learned arbiter takes to grant.

python -m benchmarks.tenants [--updates 20] [--out FILE]

An update is one step of critics, value and policies on 64 moments of a pool, on one thread. Its peer is the same with
dense attention, whose cost grows with the square of the agents. A pool of M tenants has 2 M + 1 agents. The learned
arbiter's peer is weighted max-min on the same members; both go through the same filling. Networks are untrained: what
they answer takes no time of its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from benchmarks.arbiter import SIZES, described, drawn, milliseconds

from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.arbiter.features import unknown_signals
from rlscaler_core.arbiter.learned import Learned
from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_rl.tenants.environment import ACTIONS, SLOTS, WIDTH, Rewards
from rlscaler_rl.tenants.hrac import Learner, Memory, Options, Trained

TENANTS = (12, 49)
"""25 and 99 agents."""


def update_of(options: Options) -> Callable[[], None]:
    """One update of a learner whose memory is full of drawn moments."""
    rng = np.random.default_rng(0)
    shape = 2 * options.batch, options.tenants, len(SLOTS)
    seen = rng.random((*shape, WIDTH), np.float32)
    learner, memory = Learner(options), Memory(shape[0], options.tenants)
    local = rng.random(shape, np.float32)
    memory.add(seen, rng.integers(0, ACTIONS, shape), Rewards(local, local.mean(axis=(1, 2))), seen)
    return lambda: learner.update(learner.draw(memory))


def cpu_milliseconds(work: Callable[[], object], times: int) -> float:
    """The median of CPU time of an update: what else runs on the machine does not count."""
    work()
    took = []
    for _ in range(times):
        began = time.process_time()
        work()
        took.append(1e3 * (time.process_time() - began))
    return round(float(np.median(took)), 3)


def untrained(folder: Path) -> Learned:
    """An arbiter's network as training begins with."""
    learner = Learner(Options())
    Trained(learner.policies, learner.options, 0.0, [0.0], [(0, 1.0)]).save(folder)
    return Learned.load(folder)


@click.command()
@click.option("--updates", default=20, show_default=True, help="Updates of each kind.")
@click.option("--seconds", default=2.0, show_default=True, help="How long each arbiter is measured.")
@out_option
def main(updates: int, seconds: float, out: Path | None) -> None:
    """Measure and print one line for each size."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for tenants in TENANTS:
        options = Options(tenants=tenants)
        took = {
            kind: cpu_milliseconds(update_of(replace(options, attention=kind)), updates)
            for kind in ("grouped", "dense")
        }
        rows.append({"agents": 2 * tenants + 1, "update_cpu_ms": took})
        click.echo(
            f"{2 * tenants + 1:3d} agents: update {took['grouped']:.1f} ms of CPU, dense attention"
            f" {took['dense']:.1f} ms ({took['grouped'] / took['dense']:.2f} of it)"
        )
    few, many = (row["update_cpu_ms"]["grouped"] for row in rows)
    click.echo(f"from {rows[0]['agents']} to {rows[-1]['agents']} agents: {many / few:.2f} times")
    with tempfile.TemporaryDirectory() as folder:
        learned = untrained(Path(folder))
    arbiters: list[dict[str, Any]] = []
    for size in SIZES:
        budgets, members, loans = drawn(size)
        signals = unknown_signals(len(members))
        grants = {
            "learned": lambda: arbitrate(learned.bids(budgets, members, loans, signals).order, budgets, members, loans),  # noqa: B023
            "max_min": lambda: arbitrate("MaxMinFair", budgets, members, loans),  # noqa: B023
        }
        took = {name: milliseconds(grant, seconds) for name, grant in grants.items()}
        arbiters.append({"members": size.members, "budgets": size.budgets, **took})
        ours, peer = (described(took[name]) for name in grants)
        click.echo(f"{size.members:5d} members, {size.budgets:2d} budgets: learned {ours}, weighted max-min {peer}")
    write(out, {"machine": machine(), "updates": rows, "growth": round(many / few, 3), "arbiters": arbiters})


if __name__ == "__main__":
    main()
