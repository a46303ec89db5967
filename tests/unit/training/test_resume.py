"""Interrupted trainings: killed, stopped, with damaged checkpoints; and those that diverge."""

from __future__ import annotations

import io
import json
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.observation import CONTRACT_VERSION
from rlscaler_live.train_cli import general as command
from rlscaler_rl.training import checkpoint
from rlscaler_rl.training.config import ConfigError, TrainingConfig
from rlscaler_rl.training.errors import CheckpointError, DivergedError
from rlscaler_rl.training.train import make_env, make_model, train

pytestmark = pytest.mark.slow

# The kill comes where it hurts: as the third checkpoint's file is about to be renamed into place.
KILLED = """
import os, signal, sys
from pathlib import Path
from rlscaler_rl.training import checkpoint
from rlscaler_rl.training.config import TrainingConfig
from rlscaler_rl.training.train import train
replace = os.replace
def dies(source, target):
    if Path(target).name.startswith("resume_") and len(checkpoint.found(Path(target).parent)) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = dies
train(TrainingConfig.load(sys.argv[1]), Path(sys.argv[2]), progress=False)
"""

COMMAND = "from rlscaler_live.train_cli import general; general()"


@pytest.fixture(scope="module")
def config(small) -> TrainingConfig:
    """Twelve updates on environments of several intervals, with recorded loads and services with a past among them."""
    body = small.model_dump()
    body["agent"] |= {"steps": 12 * 8 * 12}
    body["environment"] |= {"action_interval": None, "trace_share": 0.3, "history_hours": 0.5}
    return TrainingConfig.model_validate(body)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, config) -> Path:
    """A run that nothing interrupted; not to be changed."""
    return train(config, tmp_path_factory.mktemp("runs") / "whole", progress=False)


@pytest.fixture
def run(tmp_path, whole) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


@pytest.fixture
def config_file(tmp_path, config) -> Path:
    path = tmp_path / "config.json"
    path.write_text(config.model_dump_json())
    return path


def changed(config: TrainingConfig, **agent: Any) -> TrainingConfig:
    return config.model_copy(update={"agent": config.agent.model_copy(update=agent)})


@pytest.mark.long
def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, config, config_file, whole, brief_program):
    killed = tmp_path / "killed"
    program = [sys.executable, "-c", brief_program + KILLED, config_file, killed]
    done = subprocess.run(program, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert len(checkpoint.found(killed)) == 2
    Actor.load(killed / "policy.onnx", Manifest.load(killed / "manifest.json"))

    train(config, killed, resume=True, progress=False)
    ours, theirs = (checkpoint.read(checkpoint.found(folder)[0]) for folder in (killed, whole))
    assert ours.steps == theirs.steps == config.agent.steps
    assert all(torch.equal(ours.policy[name], weight) for name, weight in theirs.policy.items())
    moments = _moments(theirs)
    assert all(torch.equal(value, moments[name]) for name, value in _moments(ours).items())
    assert all(ours.arrays[name].tobytes() == array.tobytes() for name, array in theirs.arrays.items())
    assert ours.state["generators"] == theirs.state["generators"]
    assert _rows(killed) == _rows(whole)
    assert (killed / "policy.onnx").read_bytes() == (whole / "policy.onnx").read_bytes()


def _moments(one: checkpoint.Checkpoint) -> dict[str, torch.Tensor]:
    state = one.optimizer["state"]
    return {f"{number}.{name}": value for number, row in state.items() for name, value in row.items()}


def _rows(folder: Path) -> list[dict[str, object]]:
    rows = json.loads((folder / "training_progress.json").read_text())
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_a_stopped_run_says_how_to_go_on_and_leaves_a_policy(tmp_path, config_file, brief_program):
    out = tmp_path / "out"
    options = ["--config", config_file, "--out", out, "--steps", "10000000", "--quiet"]
    program = [sys.executable, "-c", brief_program + COMMAND, *options]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 600
    while not checkpoint.found(out) and process.poll() is None and time.monotonic() < deadline:
        threading.Event().wait(0.2)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=600)[0]
    assert process.returncode == 130, said
    assert "stopping after this update" in said
    assert f"--resume --out {out}" in said
    Actor.load(out / "policy.onnx", Manifest.load(out / "manifest.json"))
    assert checkpoint.read(checkpoint.found(out)[0]).steps > 0


def test_damaged_checkpoints_are_passed_over_by_name(run, config):
    said: list[str] = []
    newest, before = checkpoint.found(run)
    newest.write_bytes(newest.read_bytes()[:-1000])
    assert checkpoint.newest(run, said.append).path == before
    assert newest.name in said[0]
    assert "going back" in said[0]
    newest.write_bytes(b"garbage")
    assert checkpoint.newest(run, said.append).path == before
    train(config, run, resume=True, progress=False, say=said.append)
    assert checkpoint.read(newest).steps == config.agent.steps
    for path in (newest, before):
        path.write_bytes(b"garbage")
    with pytest.raises(ConfigError, match="none of its checkpoints"):
        checkpoint.newest(run, said.append)


def test_what_does_not_belong_to_the_run_is_refused(run, config):
    with pytest.raises(ConfigError, match="--resume or choose another folder"):
        train(config, run, progress=False)
    wider = config.model_copy(update={"environment": config.environment.model_copy(update={"stack_size": 8})})
    with pytest.raises(ConfigError, match=r"environment\.stack_size was 4 and is 8 now"):
        train(wider, run, resume=True, progress=False)
    kept = checkpoint.read(checkpoint.found(run)[0])
    kept.state["contract_version"] = "rlscaler.io/observation/v0"
    with pytest.raises(ConfigError, match=f"v0 and this release makes {CONTRACT_VERSION}"):
        checkpoint.check(kept, config)


def test_pickles_in_a_checkpoint_stay_closed(run):
    path = checkpoint.found(run)[0]
    content = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, pickle.dumps(Path, protocol=2) if name == "policy.pth" else old.read(name))
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.read(path)


def test_divergence_stops_the_run_and_saves_the_batch(run, config):
    last = checkpoint.found(run)[0]
    wild = changed(config, steps=2 * config.agent.steps, learning_rate=1e30)
    with pytest.raises(DivergedError) as raised:
        train(wild, run, resume=True, progress=False)
    (batch,) = run.glob("diverged_*.npz")
    assert str(batch) in str(raised.value)
    assert str(last) in str(raised.value)
    with np.load(batch, allow_pickle=False) as arrays:
        assert arrays["rewards"].size == 12 * 8
        assert np.isfinite(arrays["observations"]).all()
    assert all(torch.isfinite(weight).all() for weight in checkpoint.read(last).policy.values())
    Actor.load(run / "policy.onnx", Manifest.load(run / "manifest.json"))


def test_a_run_without_a_folder_saves_the_batch_all_the_same(config, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    wild = changed(config, learning_rate=1e30)
    model = make_model(wild, make_env(wild), None)
    with pytest.raises(DivergedError, match="the batch is in") as raised:
        model.learn(wild.agent.steps)
    (batch,) = tmp_path.glob("rlscaler-diverged-*/diverged_*.npz")
    assert str(batch) in str(raised.value)


def test_divergence_is_a_failure_of_the_command(tmp_path, config):
    path = tmp_path / "wild.json"
    path.write_text(changed(config, learning_rate=1e30).model_dump_json())
    done = CliRunner().invoke(command, ["--config", str(path), "--out", str(tmp_path / "out"), "--quiet"])
    assert done.exit_code == 1
    assert "is not finite" in done.output
    assert "none yet" in done.output
