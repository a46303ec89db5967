"""Several networks made into one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from rlscaler_core.decision.action import PLACEMENT_HEAD, POOL_HEADS
from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.manifest import Manifest
from rlscaler_rl.training import distil, seeds
from rlscaler_rl.training.export import export, write
from rlscaler_rl.training.train import make_env, make_model, prepare

SEEDS = (1, 2, 3)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small) -> Path:
    """Three networks that lean in directions of their own."""
    folder = tmp_path_factory.mktemp("seeds")
    env = make_env(small)
    for seed in SEEDS:
        model = make_model(small, env, None)
        prepare(model, small)
        torch.manual_seed(seed)
        with torch.no_grad():
            model.policy.action_net.weight.add_(0.5 * torch.randn_like(model.policy.action_net.weight))
        write(folder / f"seed_{seed}", "policy", "manifest.json", *export(model.policy, small, 1))
    env.close()
    return folder


def load(folder: Path) -> Actor:
    return Actor.load(folder / "policy.onnx", Manifest.load(folder / "manifest.json"))


def divergence(mean: np.ndarray, actor: Actor, stacked: np.ndarray) -> float:
    """Mean divergence of the actor from the distributions with logarithms `mean`, summed over heads."""
    own = np.log(actor.probabilities(stacked))
    total = 0.0
    for head in (*POOL_HEADS, PLACEMENT_HEAD):
        wanted = mean[:, head] - np.log(np.exp(mean[:, head]).sum(axis=1, keepdims=True))
        total += (np.exp(wanted) * (wanted - own[:, head])).sum(axis=1).mean()
    return total


def test_one_network_answers_as_the_mean_of_the_seeds_and_is_made_alike_twice(folder, small, monkeypatch):
    monkeypatch.setattr(distil, "STEPS", 120)
    monkeypatch.setattr(distil, "BATCH", 64)
    figures = distil.distil(folder, small, SEEDS, best=1)
    made = folder / distil.DISTILLED
    first = (made / "policy.onnx").read_bytes()
    env = make_env(small)
    stacked = np.concatenate([env.reset(), *(env.step(np.full((12, 3), 2))[0] for _ in range(8))])[:, :40]
    env.close()
    seeds = [load(folder / f"seed_{seed}") for seed in SEEDS]
    mean = distil.mean_log_probabilities(seeds, stacked)
    assert divergence(mean, load(made), stacked) < 0.3 * min(divergence(mean, seed, stacked) for seed in seeds)
    manifest = Manifest.load(made / "manifest.json")
    assert (manifest.training.seed, manifest.training.model_extra) == (None, {"seeds": list(SEEDS)})
    assert set(figures) == {"j", "cost", "late_percent"}
    assert json.loads((made / "training_progress.json").read_text())[0]["validation"]["mean"] == figures
    distil.distil(folder, small, SEEDS, best=1)
    assert (made / "policy.onnx").read_bytes() == first


def test_a_network_of_the_seeds_is_made_with_one_thread_wherever_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert [seeds._with_one_thread(os.getenv, name) for name in seeds.THREADS] == ["1"] * 3
    assert (os.environ["OMP_NUM_THREADS"], os.getenv("OPENBLAS_NUM_THREADS")) == ("7", None)
