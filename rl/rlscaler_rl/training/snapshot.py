"""The state of running training environments as plain arrays and numbers, to go on from exactly where they were.

What follows from the scenarios alone (facts, sensors, params, norms, the critic's columns) is not kept: `restart`
works it out again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.decision.types import Rows
from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv

Arrays = dict[str, NDArray[Any]]


def arrays_of(env: SimulatorVecEnv) -> Arrays:
    """Name -> array, copied where it will change."""
    found: Arrays = {}
    for prefix, rows in _tables(env):
        found |= {f"{prefix}.{field.name}": getattr(rows, field.name).copy() for field in fields(rows)}  # type: ignore[arg-type]
    for i, group in enumerate(env.groups):
        found |= {f"group{i}.cluster.{name}": array.copy() for name, array in group.batch.cluster._asdict().items()}
        found |= {f"group{i}.returns": group.returns.copy(), f"group{i}.steps": group.steps.copy()}
    for i, source in enumerate(env.own_sources):
        if source.stock:
            stock = Scenarios.concat(source.stock)
            found |= {f"source{i}.stock.{field.name}": getattr(stock, field.name) for field in fields(stock)}
    return found


def generators_of(env: SimulatorVecEnv) -> list[dict[str, Any]]:
    """The states of everything that draws, in a fixed order; JSON can hold them."""
    return [dict(generator.bit_generator.state) for generator in _generators(env)]


def restore(env: SimulatorVecEnv, arrays: Arrays, generators: list[dict[str, Any]]) -> None:
    """Put `env`, made with the same settings and reset, into the state that was taken.

    Raises KeyError or ValueError where the arrays belong to other settings.
    """
    for generator, state in zip(_generators(env), generators, strict=True):
        generator.bit_generator.state = state
    for i, source in enumerate(env.own_sources):
        stock = {name: array for name in _NAMES if (array := arrays.get(f"source{i}.stock.{name}")) is not None}
        source.stock = [Scenarios(**stock)] if stock else []
    for i, group in enumerate(env.groups):
        batch = group.batch
        scenarios = Scenarios(**{name: arrays[f"group{i}.scenarios.{name}"] for name in _NAMES})
        batch.restart(batch.rows, scenarios)
        if group.extra is not None:
            group.extra.restart(batch.rows, scenarios)
        group.norms = objectives.norms(scenarios)
        for name, array in batch.cluster._asdict().items():
            array[...] = arrays[f"group{i}.cluster.{name}"]
        group.returns[:], group.steps[:] = arrays[f"group{i}.returns"], arrays[f"group{i}.steps"]
    for prefix, rows in _tables(env):
        for field in fields(rows):  # type: ignore[arg-type]
            getattr(rows, field.name)[...] = arrays[f"{prefix}.{field.name}"]


_NAMES = tuple(field.name for field in fields(Scenarios))


def _tables(env: SimulatorVecEnv) -> Iterator[tuple[str, Rows]]:
    for i, group in enumerate(env.groups):
        tables = {
            "scenarios": group.batch.scenarios,
            "state": group.batch.state,
            "samples": group.samples,
            "observation": group.observation,
        }
        for name, rows in tables.items():
            yield f"group{i}.{name}", rows


def _generators(env: SimulatorVecEnv) -> list[np.random.Generator]:
    own = [source.rng for source in env.own_sources]
    return [*own, env.stagger] if env.stagger is not None else own
