"""The state of running training environments as plain arrays and numbers, to go on from exactly where they were.

What follows from the scenarios alone (facts, sensors, params, norms, the critic's columns) is not kept: `restart`
works it out again.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from numpy.typing import NDArray

from rlscaler_core.decision.types import Rows
from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv

Arrays = dict[str, NDArray[Any]]


def arrays_of(env: SimulatorVecEnv) -> Arrays:
    """Name -> array, row by row whatever the number of threads; copied where it will change."""
    found: Arrays = {"stock.taken": env.buffer.taken.copy()}
    for name, tables in _tables(env).items():
        found |= {f"{name}.{column}": env.together([table[column] for table in tables]) for column in tables[0]}
    return found


def generators_of(env: SimulatorVecEnv) -> list[dict[str, Any]]:
    """The states of everything that draws, in a fixed order; JSON can hold them. Of the sources as they were before
    the last draw: what of it was not taken yet is drawn again."""
    states = [source.before for source in env.own_sources]
    return states if env.stagger is None else [*states, dict(env.stagger.bit_generator.state)]


def restore(env: SimulatorVecEnv, arrays: Arrays, generators: list[dict[str, Any]]) -> None:
    """Put `env`, made with the same settings and reset, into the state that was taken.

    Raises KeyError or ValueError where the arrays belong to other settings.
    """
    own = [source.rng for source in env.own_sources]
    for generator, state in zip(own if env.stagger is None else [*own, env.stagger], generators, strict=True):
        generator.bit_generator.state = state
    for shelf in range(len(env.buffer.taken)):
        env.buffer.refill(shelf)
    env.buffer.taken[:] = arrays["stock.taken"]
    for i, group in enumerate(env.groups):
        batch, rows = group.batch, env.rows_of(i)
        scenarios = Scenarios(**{field.name: arrays[f"scenarios.{field.name}"][rows] for field in fields(Scenarios)})
        batch.restart(batch.rows, scenarios)
        group.recount()
    for name, tables in _tables(env).items():
        for i, table in enumerate(tables):
            for column, array in table.items():
                array[...] = arrays[f"{name}.{column}"][env.rows_of(i)]
    for group in env.groups:
        group.counters = objectives.read(group.batch.cluster)


def _tables(env: SimulatorVecEnv) -> dict[str, list[Arrays]]:
    """Table -> its columns in every group."""
    return {
        "scenarios": [_columns(group.batch.scenarios) for group in env.groups],
        "state": [_columns(group.batch.state) for group in env.groups],
        "samples": [_columns(group.samples) for group in env.groups],
        "observation": [_columns(group.observation) for group in env.groups],
        "cluster": [group.batch.cluster._asdict() for group in env.groups],
        "episode": [{"returns": group.returns, "steps": group.steps} for group in env.groups],
    }


def _columns(rows: Rows) -> Arrays:
    return {field.name: getattr(rows, field.name) for field in fields(rows)}
