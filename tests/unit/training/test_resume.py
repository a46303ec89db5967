"""Interrupted trainings: killed, stopped, with damaged checkpoints; and those that diverge."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from rlscaler_rl.decision.actor import Actor
from rlscaler_rl.decision.contract import CONTRACT_VERSION
from rlscaler_rl.decision.manifest import Manifest
from rlscaler_rl.training import checkpoint
from rlscaler_rl.training.cli import train as command
from rlscaler_rl.training.config import ConfigError, TrainingConfig
from rlscaler_rl.training.errors import CheckpointError, DivergedError
from rlscaler_rl.training.train import train

pytestmark = pytest.mark.usefixtures("_brief_validation")

LONG = {"steps": 12 * 8 * 12, "critic_rollouts": 3}

# The kill comes where it hurts: as the second checkpoint's file is about to be renamed into place.
KILLED = """
import os, signal, sys
from pathlib import Path
from rlscaler_rl.training import checkpoint, validation
from rlscaler_rl.training.config import TrainingConfig
from rlscaler_rl.training.train import train
validation.SETTINGS = ((30.0, 60),)
replace = os.replace
def dies(source, target):
    if Path(target).name.startswith("resume_") and len(checkpoint.found(Path(target).parent)) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = dies
train(TrainingConfig.load(sys.argv[1]), Path(sys.argv[2]), progress=False)
"""


@pytest.fixture
def config(small) -> TrainingConfig:
    """Of twelve updates on environments of three different intervals."""
    body = small.model_dump()
    body["agent"] |= LONG
    body["environment"]["action_interval"] = None
    return TrainingConfig.model_validate(body)


@pytest.fixture
def config_file(tmp_path, config) -> Path:
    path = tmp_path / "config.json"
    path.write_text(config.model_dump_json())
    return path


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path, config, config_file):
    killed, whole = tmp_path / "killed", train(config, tmp_path / "whole", progress=False)
    done = subprocess.run([sys.executable, "-c", KILLED, config_file, killed], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert len(checkpoint.found(killed)) == 2
    Actor.load(killed / "policy.onnx", Manifest.load(killed / "manifest.json"))

    train(config, killed, resume=True, progress=False)
    ours, theirs = (checkpoint.read(checkpoint.found(folder)[0]) for folder in (killed, whole))
    assert ours.steps == theirs.steps == config.agent.steps
    assert all(torch.equal(ours.policy[name], theirs.policy[name]) for name in theirs.policy)
    assert _moments(ours).keys() == _moments(theirs).keys()
    assert all(torch.equal(ours, _moments(theirs)[name]) for name, ours in _moments(ours).items())
    assert all(ours.arrays[name].tobytes() == array.tobytes() for name, array in theirs.arrays.items())
    assert ours.state["generators"] == theirs.state["generators"]
    assert _rows(killed) == _rows(whole)
    assert (killed / "policy.onnx").read_bytes() == (whole / "policy.onnx").read_bytes()
    assert not list(killed.glob("*.tmp*"))


def _moments(one: checkpoint.Checkpoint) -> dict[str, torch.Tensor]:
    return {f"{number}.{name}": value for number, row in one.optimizer["state"].items() for name, value in row.items()}


def _rows(folder: Path) -> list[dict[str, object]]:
    rows = json.loads((folder / "training_progress.json").read_text())
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_a_stopped_run_says_how_to_go_on_and_leaves_a_policy(tmp_path, config_file):
    out = tmp_path / "out"
    program = "from rlscaler_rl.training.cli import train; train()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "--config", config_file, "--out", out, "--steps", "10000000", "--quiet"],
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 300
    while not (out / "tensorboard").exists() and time.monotonic() < deadline:
        os.sched_yield()
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 130, said
    assert "stopping after this update" in said
    assert f"--resume --out {out}" in said
    Actor.load(out / "policy.onnx", Manifest.load(out / "manifest.json"))
    assert checkpoint.read(checkpoint.found(out)[0]).steps > 0


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda content: b"garbage"])
def test_a_damaged_checkpoint_is_passed_over_by_name(tmp_path, config, damage):
    folder, said = train(config, tmp_path / "run", progress=False), []
    newest, before = checkpoint.found(folder)
    newest.write_bytes(damage(newest.read_bytes()))
    train(config, folder, resume=True, progress=False, say=said.append)
    assert newest.name in said[0]
    assert "going back" in said[0]
    assert checkpoint.read(newest).steps == config.agent.steps
    for path in (newest, before):
        path.write_bytes(b"garbage")
    with pytest.raises(ConfigError, match="none of its checkpoints"):
        train(config, folder, resume=True, progress=False, say=said.append)


def test_what_does_not_belong_to_the_run_is_refused(tmp_path, small):
    folder = train(small, tmp_path / "run", progress=False)
    with pytest.raises(ConfigError, match="--resume or choose another folder"):
        train(small, folder, progress=False)
    wider = small.model_dump()
    wider["environment"]["stack_size"] = 8
    with pytest.raises(ConfigError, match=r"environment\.stack_size was 4 and is 8 now"):
        train(TrainingConfig.model_validate(wider), folder, resume=True, progress=False)
    kept = checkpoint.read(checkpoint.found(folder)[0])
    kept.state["contract_version"] = "rlscaler.io/observation/v0"
    with pytest.raises(ConfigError, match=f"v0 and this release makes {CONTRACT_VERSION}"):
        checkpoint.check(kept, small)


def test_pickles_in_a_checkpoint_stay_closed(tmp_path, small):
    folder = train(small, tmp_path / "run", progress=False)
    path = checkpoint.found(folder)[0]
    content = path.read_bytes()
    import io
    import pickle
    import zipfile

    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, pickle.dumps(Path) if name == "policy.pth" else old.read(name))
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.read(path)


def test_divergence_stops_the_run_and_saves_the_batch(tmp_path, config):
    body = config.model_dump()
    body["agent"] |= {"checkpoint_episodes": 1}
    calm = TrainingConfig.model_validate(body)
    train(
        TrainingConfig.model_validate({**body, "agent": body["agent"] | {"steps": 12 * 8 * 4}}),
        tmp_path,
        progress=False,
    )
    wild = calm.model_copy(update={"agent": calm.agent.model_copy(update={"learning_rate": 1e30})})
    with pytest.raises(DivergedError) as raised:
        train(wild, tmp_path, resume=True, progress=False)
    (batch,) = tmp_path.glob("diverged_*.npz")
    last = checkpoint.found(tmp_path)[0]
    assert str(batch) in str(raised.value)
    assert str(last) in str(raised.value)
    with np.load(batch, allow_pickle=False) as arrays:
        assert np.isfinite(arrays["observations"]).all()
        assert arrays["rewards"].size == 12 * 8
    assert all(torch.isfinite(weight).all() for weight in checkpoint.read(last).policy.values())
    Actor.load(tmp_path / "policy.onnx", Manifest.load(tmp_path / "manifest.json"))


def test_divergence_is_a_failure_of_the_command(tmp_path, config_file):
    body = json.loads(config_file.read_text())
    body["agent"] |= {"learning_rate": 1e30, "critic_rollouts": 0}
    config_file.write_text(json.dumps(body))
    done = CliRunner().invoke(command, ["--config", str(config_file), "--out", str(tmp_path / "out"), "--quiet"])
    assert done.exit_code == 1
    assert "is not finite" in done.output
    assert "none yet" in done.output
