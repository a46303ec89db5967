"""Drawing pools of tenants: each has a load of its own, at its own phase and scale, and its terms of the budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from rlscaler_core.arbiter.arbitrate import arbitrate
from rlscaler_core.arbiter.types import make_budgets, make_members, no_loans
from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.days.drawn import drawn_load
from rlscaler_rl.evaluation.days.service_load import ServiceLoad, from_library
from rlscaler_rl.simulation.cluster import MAX_PODS
from rlscaler_rl.simulation.scenario import NOMINAL, Scenarios, from_rate
from rlscaler_rl.tenants.changes import Change, Course, course
from rlscaler_rl.tenants.pools import Tenants
from rlscaler_rl.tenants.room import Long
from rlscaler_rl.workloads import Part
from rlscaler_rl.workloads.days import DAY

LOADS = ("servegen_large", "servegen_small", "worldcup", "jobs_1", "jobs_2", "random_1", "random_2")
"""Recorded loads that ship, and drawn ones with jumps: `rlscaler trace days`, `rlscaler days --loads`."""

TRAIN_LOADS = ("worldcup", "jobs_11", "jobs_12", "random_11", "random_12")
TUNE_LOADS = ("jobs_13", "random_13")
TEST_LOADS = ("servegen_large", "servegen_small", "jobs_1", "jobs_2", "random_1", "random_2")
"""Loads are split by whole traces: none that is played in a test was trained or chosen on."""

SIZES = (1.0, 6.0)
"""Bounds of the log-uniform GPUs that a tenant's busy hours need."""

GUARANTEED = 0.5
"""Part of the pool, beyond one GPU for each tenant, that is guaranteed, by the tenants' sizes."""

PRIORITIES = 3

CPUS_PER_GPU = 2
"""CPU replicas that a tenant may have for each GPU replica that it may have."""


@dataclass(frozen=True, slots=True)
class Request:
    """Parameters of drawn pools."""

    tenants: int = 8
    """Number of tenants in each pool."""
    pools: int = 16
    """Number of pools that are drawn; each pool is one observation."""
    hours: int = 6
    """Length of the episode in hours."""
    tightness: float = 1.0
    """GPUs of a pool over the sum of its tenants' needs in their busy hours, which they do not have at one time."""
    loads: tuple[str, ...] = LOADS
    part: Part = Part.TEST
    """Part of the loads whose days are played."""
    cpu: bool = False
    """Tenants have a CPU pool of their own too, which is not shared."""
    seed: int = 0
    change: Change = "none"
    """Change in the middle of the episode."""
    folder: Path | None = None
    """Folder of the loads that do not ship."""


@lru_cache(maxsize=16)
def _load(name: str, folder: Path | None) -> ServiceLoad:
    """A load whose busy hours have one request/s."""
    return drawn_load(name, 1.0) or from_library(name, 1.0, 1.0, folder)


@lru_cache(maxsize=128)
def _day(name: str, folder: Path | None, number: int) -> Float:
    """The seconds of a day of a load. A training draws the same days again and again, and seconds are slow to draw."""
    load = _load(name, folder)
    first = load.offset + number * load.length
    return load.seconds(first, first + load.length)


@dataclass(frozen=True, slots=True)
class Drawn:
    """P pools of M tenants, pool after pool."""

    scenarios: Scenarios
    tenants: Tenants
    gpus: Long
    """(P,) GPUs of each pool."""
    sizes: Float
    """(P, M) GPUs that the tenants' busy hours need."""
    loads: tuple[str, ...]
    """(P * M,)"""
    changes: Course


def draw(request: Request) -> Drawn:
    """Draw pools; the same request gives the same ones. Raises WorkloadError for a load that is not there."""
    for name in request.loads:
        _load(name, request.folder)  # also those that no tenant happens to draw
    rates, sizes, seeds, names = [], [], [], []
    for pool in range(request.pools):
        rng = np.random.default_rng([request.seed, pool])
        size = SIZES[0] * (SIZES[1] / SIZES[0]) ** rng.random(request.tenants)
        sizes.append(size)
        for each in size:
            name = str(rng.choice(request.loads))
            rates.append(_rate(name, request, float(each), rng))
            seeds.append(int(rng.integers(2**31)))
            names.append(name)
    table, rate = np.array(sizes), np.stack(rates)
    gpus = np.maximum(np.round(request.tightness * table.sum(axis=1)), request.tenants).astype(np.int64)
    tenants = _terms(table, gpus, request.seed)
    changes = course(request.change, tenants.pool, gpus, 3600 * request.hours)
    rate = rate * changes.there(3600 * request.hours)
    most = np.minimum(np.ceil(2 * table).astype(np.int64).ravel() + 1, MAX_PODS)
    initial = _initial(rate[:, 0], most, tenants, gpus)
    scenarios = from_rate(
        rate,
        seeds,
        pattern="tenant",
        present=(True, request.cpu),
        min_replicas=(1, 0),
        max_replicas=_beside(most, np.minimum(CPUS_PER_GPU * most, MAX_PODS) if request.cpu else None),
        initial=_beside(initial),
        schedulable=_beside(np.full(len(most), MAX_PODS), np.full(len(most), MAX_PODS)),
    )
    return Drawn(scenarios, tenants, gpus, table, tuple(names), changes)


def side_by_side(parts: list[Drawn]) -> Drawn:
    """Return the pools of several draws of one request as one draw, in order. Their changes are at the same seconds."""
    first = np.cumsum([0, *(len(part.gpus) for part in parts[:-1])])
    pool = [part.tenants.pool + before for part, before in zip(parts, first, strict=True)]
    tenants, changes = Tenants.concat([part.tenants for part in parts]), [part.changes for part in parts]
    return Drawn(
        Scenarios.concat([part.scenarios for part in parts]),
        replace(tenants, pool=np.concatenate(pool).astype(np.int32)),
        np.concatenate([part.gpus for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        tuple(name for part in parts for name in part.loads),
        replace(
            changes[0],
            away_from=np.concatenate([change.away_from for change in changes]),
            away_until=np.concatenate([change.away_until for change in changes]),
            lost=np.concatenate([change.lost for change in changes]),
        ),
    )


def _rate(name: str, request: Request, size: float, rng: np.random.Generator) -> Float:
    """Hours of a day of the request's part, from a drawn one on, for a service whose busy hours need `size` GPUs."""
    day = int(rng.choice(_load(name, request.folder).parts[request.part]))
    first = 3600 * int(rng.integers(0, (DAY // 3600) - request.hours + 1))
    return _day(name, request.folder, day)[first : first + 3600 * request.hours] * size * _per_gpu()


def _per_gpu() -> float:
    """Requests/s of a GPU that is as busy as it should be."""
    return float(NOMINAL["rps"][0] * NOMINAL["target_utilization"])


def _terms(sizes: Float, gpus: Long, seed: int) -> Tenants:
    pools, each = sizes.shape
    share = sizes / sizes.sum(axis=1, keepdims=True)
    guaranteed = 1 + np.floor(GUARANTEED * (gpus[:, None] - each) * share)
    return Tenants(
        pool=np.repeat(np.arange(pools, dtype=np.int32), each),
        guaranteed=guaranteed.ravel(),
        weight=sizes.ravel().copy(),
        priority=np.random.default_rng([seed, 9]).integers(0, PRIORITIES, sizes.size).astype(np.int32),
    )


def _initial(rate: Float, most: Long, tenants: Tenants, gpus: Long) -> Long:
    """Replicas at the begin of an episode: the need of the load, as far as the pool goes."""
    needed = np.clip(np.ceil(rate / _per_gpu()), 1, most)
    members = make_members(len(rate), budget=tenants.pool, asked=needed, guaranteed=1.0, weight=tenants.weight)
    budgets = make_budgets(len(gpus), amount=gpus.astype(np.float64))
    return arbitrate("MaxMinFair", budgets, members, no_loans(len(rate)))[0].granted.astype(np.int64)


def _beside(gpu: Long, cpu: Long | None = None) -> Long:
    """Columns (N, 2) of the GPU and the CPU pool; 0 in the latter where it is left out."""
    return np.stack([gpu, np.zeros(len(gpu), np.int64) if cpu is None else cpu], axis=1)
