"""CPU time of the arbiter from proposals to grants, beside plain Python water filling.

python benchmarks/arbiter.py [--seconds 5] [--out FILE]

Members request 1 to 10 replicas, half of them have a guarantee, and the amount is 60 % of the sum of the requests. With
several resources a replica takes 0 to 8 units of each further resource, of which the amount is 60 % too. The peer hands
out replicas singly from a heap, guarantees first: the grants of `MaxMinFair`, without the additions of the arbiter
(loans, replicas that still run elsewhere, reasons). Both have to come to the same grants.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.arbiter.types import Budgets, Loans, Members, make_budgets, make_members, no_loans, summed
from rlscaler_dev.benchmark import machine, out_option, write


class Size(NamedTuple):
    """Numbers of members and of the budgets that they share."""

    members: int
    budgets: int
    resources: int = 1


SIZES = (
    *(Size(25, 1), Size(100, 1), Size(1000, 1), Size(1000, 50)),
    *(Size(25, 1, 3), Size(100, 1, 3), Size(1000, 1, 3), Size(1000, 50, 3)),
)
FEWEST = 20
"""Times that each is measured at least."""


def drawn(size: Size, seed: int = 1) -> tuple[Budgets, Members, Loans]:
    """Draw members and budgets; the members already run their grants, so that nothing has to wait."""
    rng = np.random.default_rng(seed)
    m, b, r = size
    requested = rng.integers(1, 11, m)
    own = np.where(rng.random(m) < 0.5, rng.integers(0, 4, m), 0)
    budget = np.arange(m) % b
    weight = rng.choice([1.0, 2.0, 4.0], m)
    units = np.hstack([np.ones((m, 1)), rng.integers(0, 9, (m, r - 1))])
    amount = np.floor(0.6 * summed(requested[:, None] * units, budget, b))
    guaranteed = own[:, None] * units
    members = make_members(m, budget=budget, asked=requested, units=units, guaranteed=guaranteed, weight=weight)
    return make_budgets(b, amount=amount), members, no_loans(m)


def water_filling(budgets: Budgets, members: Members) -> list[int]:
    """Plain Python: of each budget one replica after another, to the member with the smallest share for its weight."""
    granted, units, guaranteed = [0] * len(members), members.units.tolist(), members.guaranteed.tolist()
    for budget, room in enumerate(budgets.amount.tolist()):
        rows = np.flatnonzero(members.budget == budget).tolist()
        scale = [room[0] / amount for amount in room]
        requested = {row: int(members.asked[row]) for row in rows}
        own = {row: min(requested[row], _whole(guaranteed[row], units[row])) for row in rows}
        rate = {row: max(map(mul, units[row], scale)) / float(members.weight[row]) for row in rows}
        for limit in (own, requested):
            heap = [((granted[row] + 1) * rate[row], row) for row in rows if granted[row] < limit[row]]
            heapq.heapify(heap)
            while heap:
                _, row = heapq.heappop(heap)
                if any(each > left for each, left in zip(units[row], room, strict=True)):
                    continue
                granted[row] += 1
                room = [left - each for each, left in zip(units[row], room, strict=True)]
                if granted[row] < limit[row]:
                    heapq.heappush(heap, ((granted[row] + 1) * rate[row], row))
    return granted


def _whole(guaranteed: list[float], units: list[float]) -> int:
    return int(min(own // each for own, each in zip(guaranteed, units, strict=True) if each > 0))


def milliseconds(work: Callable[[], object], seconds: float) -> dict[str, float]:
    """Median and 99th percentile of as many calls as fit in `seconds`: of the time that passes and of CPU time.

    Other programs on the machine count in the time that passes, and not in CPU time.
    """
    took: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(took) < FEWEST or time.perf_counter() < end:
        began, began_cpu = time.perf_counter(), time.process_time()
        work()
        took.append((time.perf_counter() - began, time.process_time() - began_cpu))
    (p50, cpu_p50), (p99, cpu_p99) = 1e3 * np.percentile(took, (50, 99), axis=0)
    names = {"p50_ms": p50, "p99_ms": p99, "cpu_p50_ms": cpu_p50, "cpu_p99_ms": cpu_p99}
    return {name: round(float(value), 3) for name, value in names.items()} | {"calls": len(took)}


def described(took: dict[str, float]) -> str:
    """One measurement as text."""
    cpu = f"CPU {took['cpu_p50_ms']:.2f}, p99 {took['cpu_p99_ms']:.2f}"
    return f"{took['p50_ms']:.2f} ms (p99 {took['p99_ms']:.2f}; {cpu})"


@click.command()
@click.option("--seconds", default=5.0, show_default=True, help="Length of each measurement.")
@out_option
def main(seconds: float, out: Path | None) -> None:
    """Measure and print one line for each size."""
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        budgets, members, loans = drawn(size)
        grants, loans = arbitrate("MaxMinFair", budgets, members, loans)
        members.current = grants.granted
        if grants.granted.tolist() != water_filling(budgets, members):
            raise SystemExit(f"{size}: the arbiter and water filling differ")
        ours = milliseconds(lambda: arbitrate("MaxMinFair", budgets, members, loans), seconds)  # noqa: B023
        peer = milliseconds(lambda: water_filling(budgets, members), seconds)  # noqa: B023
        rows.append({**size._asdict(), "arbiter": ours, "water_filling": peer})
        click.echo(
            f"{size.members:5d} members, {size.budgets:2d} budgets, {size.resources} resources: "
            f"arbiter {described(ours)}, water filling {described(peer)}"
        )
    write(out, {"machine": machine(), "sizes": rows})


if __name__ == "__main__":
    main()
