"""Everything a training goes on from, in one file: resume_episode_N.zip.

It holds the weights and the optimiser's state (torch files, read with `weights_only`), the states of the environments
and of every generator (.npy), and the counters with the configuration (JSON); nothing is pickled. Where the same
machine goes on with the same library versions on the CPU, the run that was interrupted equals the one that was not,
bit by bit. Tables that follow from the scenarios alone (facts, sensors, params, norms, the critic's columns) are not
in the file: `restart` computes them again.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO

from rlscaler_core.decision.observation import CONTRACT_VERSION
from rlscaler_core.decision.types import Rows
from rlscaler_rl.simulation import objectives
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv
from rlscaler_rl.training.config import ConfigError, TrainingConfig
from rlscaler_rl.training.errors import CheckpointError
from rlscaler_rl.training.files import write_atomically

KEPT = 2
"""The newest, and the one before in case that the newest turns out to be damaged."""

FORMAT = 1
Arrays = dict[str, NDArray[Any]]
_NUMBER = re.compile(r"resume_episode_(\d+)\.zip$")
_FREE = ("steps", "checkpoint_episodes", "evaluation_episodes", "torch_threads", "device")
_SCHEDULES = ("learning_rate", "final_learning_rate", "entropy", "final_entropy")


@dataclass(slots=True)
class Checkpoint:
    """Content of a checkpoint file, read and checked."""

    path: Path
    state: dict[str, Any]
    policy: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    arrays: Arrays

    @property
    def steps(self) -> int:
        return int(self.state["steps"])


def found(folder: Path) -> list[Path]:
    """The checkpoints of a folder, newest first."""
    numbered = {
        int(match[1]): path for path in folder.glob("resume_episode_*.zip") if (match := _NUMBER.search(path.name))
    }
    return [numbered[number] for number in sorted(numbered, reverse=True)]


def save(folder: Path, episodes_per_env: int, model: PPO, config: TrainingConfig, progress: dict[str, Any]) -> Path:
    """Write a checkpoint between two rollouts and drop the oldest; `progress` is the state of the recorder."""
    env = model.get_env()
    numpy_state = np.random.get_state(legacy=False)
    arrays = arrays_of(env) | {
        "last_observation": model._last_obs,
        "last_starts": model._last_episode_starts,
        "torch_generator": torch.get_rng_state().numpy(),
        "numpy_generator": numpy_state["state"]["key"],
    }
    state = {
        "format": FORMAT,
        "contract_version": CONTRACT_VERSION,
        "config": config.model_dump(),
        "steps": model.num_timesteps,
        "updates": model._n_updates,
        "device": model.device.type,
        "generators": generators_of(env),
        "numpy_position": numpy_state["state"]["pos"],
        "progress": progress,
    }
    content = io.BytesIO()
    # Weights hardly compress, and learning waits for the file: the quickest level.
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("state.json", json.dumps(state))
        archive.writestr("policy.pth", _torch_bytes(model.policy.state_dict()))
        archive.writestr("optimizer.pth", _torch_bytes(model.policy.optimizer.state_dict()))
        for name, array in arrays.items():
            with archive.open(f"arrays/{name}.npy", "w") as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
    path = folder / f"resume_episode_{episodes_per_env}.zip"
    write_atomically(path, content.getvalue())
    for old in found(folder)[KEPT:]:
        old.unlink()
    return path


def newest(folder: Path, say: Callable[[str], None]) -> Checkpoint:
    """The newest checkpoint that can be read; `say` is told of those that cannot. Raises ConfigError: there is none."""
    paths = found(folder)
    for path in paths:
        try:
            return read(path)
        except CheckpointError as error:
            say(f"{error}; going back to the checkpoint before it")
    damaged = "none of its checkpoints can be read" if paths else "no resume_episode_*.zip to go on from"
    raise ConfigError(f"{folder}: {damaged}; start a new run without --resume, in another folder")


def read(path: Path) -> Checkpoint:
    """Raises CheckpointError for a file that is damaged or of another format."""
    try:
        with zipfile.ZipFile(path) as archive:
            state = json.loads(archive.read("state.json"))
            if state.get("format") != FORMAT:
                raise CheckpointError(f"{path}: format {state.get('format')}, and this release reads {FORMAT}")
            weights = [
                torch.load(io.BytesIO(archive.read(name)), map_location="cpu", weights_only=True)
                for name in ("policy.pth", "optimizer.pth")
            ]
            names = [name for name in archive.namelist() if name.startswith("arrays/")]
            arrays = {
                name.removeprefix("arrays/").removesuffix(".npy"): np.load(
                    io.BytesIO(archive.read(name)), allow_pickle=False
                )
                for name in names
            }
    except (OSError, KeyError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, pickle.UnpicklingError) as error:
        if isinstance(error, CheckpointError):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise CheckpointError(f"{path}: cannot be read ({reason})") from error
    return Checkpoint(path, state, weights[0], weights[1], arrays)


def check(checkpoint: Checkpoint, config: TrainingConfig) -> None:
    """Raises ConfigError where the checkpoint belongs to another contract or to other settings."""
    version = checkpoint.state["contract_version"]
    if version != CONTRACT_VERSION:
        raise ConfigError(
            f"{checkpoint.path}: its observations are {version} and this release makes {CONTRACT_VERSION}; train anew"
        )
    for part in ("environment", "agent"):
        before, now = checkpoint.state["config"][part], getattr(config, part).model_dump(mode="json")
        for name in sorted({*before, *now}):
            if part == "agent" and name in (*_FREE, *_SCHEDULES):
                continue
            if before.get(name) != now.get(name):
                raise ConfigError(
                    f"{checkpoint.path}: {part}.{name} was {before.get(name)} and is {now.get(name)} now; resume "
                    "with what the run began with, or start a new run in another folder"
                )


def put(checkpoint: Checkpoint, model: PPO) -> None:
    """Make a model, fresh from the same configuration, the one that was saved. Raises ConfigError: it does not fit."""
    state, arrays, env = checkpoint.state, checkpoint.arrays, model.get_env()
    width = arrays["last_observation"].shape[1]
    if width != env.observation_space.shape[0]:
        raise ConfigError(
            f"{checkpoint.path}: observations of {width} numbers, and the environment makes "
            f"{env.observation_space.shape[0]}; train anew"
        )
    try:
        model.policy.load_state_dict(checkpoint.policy)
        model.policy.optimizer.load_state_dict(checkpoint.optimizer)
        env.reset()
        restore(env, arrays, state["generators"])
    except (KeyError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"{checkpoint.path}: made by another release ({reason}); train anew") from error
    model.num_timesteps, model._n_updates = state["steps"], state["updates"]
    model._last_obs, model._last_episode_starts = arrays["last_observation"], arrays["last_starts"]
    torch.set_rng_state(torch.from_numpy(arrays["torch_generator"].copy()))
    # stable-baselines3 shuffles minibatches by NumPy's global generator.
    key = {"key": arrays["numpy_generator"], "pos": state["numpy_position"]}
    np.random.set_state({"bit_generator": "MT19937", "state": key, "has_gauss": 0, "gauss": 0.0})


def _torch_bytes(value: Any) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def arrays_of(env: SimulatorVecEnv) -> Arrays:
    """Name -> array, row by row whatever the number of threads; copied where it will change."""
    arrays: Arrays = {"stock.taken": env.buffer.taken.copy()}
    for name, tables in _tables(env).items():
        arrays |= {f"{name}.{column}": env.together([table[column] for table in tables]) for column in tables[0]}
    return arrays


def generators_of(env: SimulatorVecEnv) -> list[dict[str, Any]]:
    """The states of everything that draws, in a fixed order; JSON can hold them.

    The sources are as they were before the last draw: the part of it that was not taken yet is drawn again.
    """
    states = [source.before for source in env.own_sources]
    return states if env.stagger is None else [*states, dict(env.stagger.bit_generator.state)]


def restore(env: SimulatorVecEnv, arrays: Arrays, generators: list[dict[str, Any]]) -> None:
    """Put `env`, made with the same settings and reset, into the state that was taken.

    Raises KeyError or ValueError where the arrays belong to other settings.
    """
    own = [source.rng for source in env.own_sources]
    for generator, state in zip(own if env.stagger is None else [*own, env.stagger], generators, strict=True):
        generator.bit_generator.state = state
    # Order: the generators are as before the newest draw, so that refilling draws the same stock again; only then the
    # running episodes take the places of those that the refill began.
    for shelf in range(len(env.buffer.taken)):
        env.buffer.refill(shelf)
    env.buffer.taken[:] = arrays["stock.taken"]
    for i, group in enumerate(env.groups):
        batch, rows = group.batch, env.rows_of(i)
        scenarios = Scenarios(**{field.name: arrays[f"scenarios.{field.name}"][rows] for field in fields(Scenarios)})
        batch.restart(batch.rows, scenarios)
        if group.twin is not None:
            group.twin.restart(batch.rows, scenarios)
        group.recount()
    for name, tables in _tables(env).items():
        for i, table in enumerate(tables):
            for column, array in table.items():
                array[...] = arrays[f"{name}.{column}"][env.rows_of(i)]
    for group in env.groups:
        group.counters = objectives.read(group.batch.cluster)
        if group.twin is not None:
            group.twin_counters = objectives.read(group.twin.cluster)


def _tables(env: SimulatorVecEnv) -> dict[str, list[Arrays]]:
    """Table -> its columns in every group."""
    twins = [group.twin for group in env.groups if group.twin is not None]
    of_the_rule = {
        "twin_state": [_columns(twin.state) for twin in twins],
        "twin_cluster": [twin.cluster._asdict() for twin in twins],
    }
    return (of_the_rule if twins else {}) | {
        "scenarios": [_columns(group.batch.scenarios) for group in env.groups],
        "state": [_columns(group.batch.state) for group in env.groups],
        "samples": [_columns(group.samples) for group in env.groups],
        "observation": [_columns(group.observation) for group in env.groups],
        "cluster": [group.batch.cluster._asdict() for group in env.groups],
        "episode": [{"returns": group.returns, "steps": group.steps} for group in env.groups],
    }


def _columns(rows: Rows) -> Arrays:
    return {field.name: getattr(rows, field.name) for field in fields(rows)}
