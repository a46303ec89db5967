"""How many service-days of the fluid level are played in a minute, with the decision function in the loop.

    python benchmarks/days.py [--rows 1,8,64,256] [--seconds 3600] [--cores 2] [--out FILE]

Stretches of `--seconds` of a load with a daily wave, noise and a jump every half hour, each after a stretch of history,
are played as `rlscaler days` plays days. A row of a batch is one service. The peer of every figure is the same
contender with one row on one core, as a day is played alone. Time is CPU time, so that other programs on the machine
count little; of several processes it is that of the one that took longest, without their start. The history before the
days is a line of its own, as it is shown once for all contenders.
"""

from __future__ import annotations

import time
from functools import cache, partial
from pathlib import Path

import click
import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_dev.benchmark import machine, out_option, write
from rlscaler_rl.evaluation.days.contenders import Contender, Policy, untuned
from rlscaler_rl.evaluation.days.play import Days, played, prepared
from rlscaler_rl.evaluation.days.processes import side_by_side
from rlscaler_rl.evaluation.days.service_load import MONDAY, ServiceLoad

DAY = 86_400
SHOWN = ("network", "rule", "hpa")


def load(number: int, length: int) -> ServiceLoad:
    """Give one service's load, another one for every number."""

    def seconds(first: int, last: int) -> Float:
        at = np.arange(first, last) + 977.0 * number
        noise = np.random.default_rng([number, first]).normal(0, 4, last - first)
        wave = 60 + 40 * np.sin(2 * np.pi * at / DAY) + noise
        return np.maximum(np.where(at % 1800 < 300, 2.2 * wave, wave), 1.0)

    return ServiceLoad(f"wave_{number}", "wave", True, seconds, MONDAY, 0, {}, length)


def cpu_seconds(days: Days, contender: Contender) -> float:
    """Play the days in this process and give the CPU time that it took, kernels loaded before."""
    _load_kernels()
    began = time.process_time()
    played(days, contender.make)
    return time.process_time() - began


@cache
def _load_kernels() -> None:
    played(prepared([(load(0, 900), 0)]), untuned()[0].make)


def entries() -> list[Contender]:
    """Give the contenders that are timed."""
    network = Policy("network", "Network", partial(load_bundled, "ppo"))
    return [entry for entry in untuned([network]) if entry.name in SHOWN]


@click.command()
@click.option("--rows", default="1,8,64,256", show_default=True, help="Rows of a batch, by commas.")
@click.option("--seconds", default=3600, show_default=True, help="Length of a stretch.")
@click.option("--cores", default=2, show_default=True, help="Batches that are played side by side in processes.")
@out_option
def main(rows: str, seconds: int, cores: int, out: Path | None) -> None:
    """Print service-days a minute for every contender and number of rows."""
    counts = [int(one) for one in rows.split(",")]
    figures: dict[str, object] = {"seconds": seconds, "cores": cores}
    chosen = [(load(number, seconds), 1) for number in range(max(counts))]
    began = time.process_time()
    days = prepared(chosen)
    learned = time.process_time() - began
    click.echo(f"history of {len(chosen)} rows: {_rate(len(chosen), seconds, learned):.1f} days a minute of one core")
    click.echo(f"| | rows | one core | times 1 row | {cores} cores | times 1 row on one |")
    click.echo("|---|---|---|---|---|---|")
    for contender in entries():
        alone: float | None = None
        for count in counts:
            some = days.take(np.arange(count))
            one = _rate(count, seconds, cpu_seconds(some, contender))
            several = side_by_side(cpu_seconds, [(some, contender)] * cores, np.inf)
            many = _rate(cores * count, seconds, max(several))
            alone = alone or one
            figures[f"{contender.name}_{count}"] = {"one": round(one, 2), "several": round(many, 2)}
            click.echo(
                f"| {contender.label} | {count} | {one:.1f} | {one / alone:.1f} | {many:.1f} | {many / alone:.1f} |"
            )
    write(out, figures | {"machine": machine()})


def _rate(rows: int, seconds: int, took: float) -> float:
    """Give whole days a minute of time."""
    return 60 * rows * seconds / DAY / took


if __name__ == "__main__":
    main()
