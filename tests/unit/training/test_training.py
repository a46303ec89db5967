"""A small run from begin to end, and what it leaves behind."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from stable_baselines3 import PPO

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.headroom import STEPS
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.types import OBSERVATIONS
from rlscaler_core.models import load_bundled
from rlscaler_live.train_cli import general as command
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.randomisation import randomised
from rlscaler_rl.simulation.ranges import RANGES
from rlscaler_rl.training import callbacks, checkpoint
from rlscaler_rl.training.config import TrainingConfig
from rlscaler_rl.training.export import NumpyActor, bare_manifest, export
from rlscaler_rl.training.network import actor_from_zip
from rlscaler_rl.training.policy import begin_with_near_misses, begin_with_no_change
from rlscaler_rl.training.train import install, make_env, make_model, summary, train
from rlscaler_rl.training.validation import best_of, validate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(small) -> PPO:
    return make_model(small, make_env(small), None)


def test_a_run_leaves_what_it_promises_and_can_go_on(tmp_path, small):
    folder = train(small, tmp_path / "run", progress=False)
    names = {path.name for path in folder.iterdir()}
    assert {"best_model.zip", "policy.onnx", "manifest.json", "config.json", "tensorboard"} <= names
    assert {"training_progress.json", "training_progress.png"} <= names
    assert any(name.startswith("model_episode_") for name in names)
    assert any(name.startswith("evaluation_episode_") for name in names)
    rows = json.loads((folder / "training_progress.json").read_text())
    assert rows[-1]["steps"] == small.agent.steps
    assert "worldcup" in summary(folder)

    before = checkpoint.found(folder)[0]
    more = TrainingConfig.load(folder / "config.json", steps=small.agent.steps * 2)
    train(more, folder, resume=True, progress=False)
    again = json.loads((folder / "training_progress.json").read_text())
    assert again[: len(rows)] == rows
    assert again[-1]["steps"] == more.agent.steps
    assert again[-1]["episodes"] > rows[-1]["episodes"]
    assert checkpoint.found(folder)[0] != before


def test_the_time_left_is_told_once_there_is_a_pace_and_by_the_last_ten_minutes(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: now[0])
    bar = callbacks.ProgressBar(SimpleNamespace(best=np.nan, recent_j=lambda: 4.2))
    bar.bar.get_time = lambda: now[0]
    bar.model = SimpleNamespace(_total_timesteps=1000)
    bar._on_training_start()
    for seconds, steps in ((40.0, 100), (120.0, 200), (200.0, 300), (201.0, 301)):
        now[0], bar.num_timesteps = seconds, steps
        bar._on_rollout_end()
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.endswith("J 4.20, best validation -; 100 of 1,000 steps")
    assert [line.rsplit(", ")[-1] for line in lines] == ["11 min left", "9 min left"]


def test_the_exported_graph_says_what_the_network_says(model, small):
    content, manifest = export(model.policy, small, 1)
    actor = Actor.load(content, manifest)
    stacked = np.random.default_rng(0).normal(size=(64, 40)).astype(np.float32)
    inside = NumpyActor.of(model.policy, bare_manifest(small)).probabilities(stacked)
    assert np.allclose(actor.probabilities(stacked), inside, atol=1e-5)
    padded = np.zeros((64, model.observation_space.shape[0]), np.float32)
    padded[:, :40] = stacked
    with torch.no_grad():
        logits = model.policy.action_net(model.policy.mlp_extractor.forward_actor(torch.as_tensor(padded)))
    first = torch.softmax(logits[:, :5], 1).numpy()
    assert np.allclose(inside[:, :5], first, atol=1e-5)


def test_a_saved_model_is_read_without_its_pickles(tmp_path, model, small):
    model.save(tmp_path / "model.zip")
    stacked = np.random.default_rng(0).normal(size=(64, 40)).astype(np.float32)
    read = actor_from_zip(tmp_path / "model.zip")
    inside = NumpyActor.of(model.policy, bare_manifest(small))
    assert np.array_equal(read.probabilities(stacked), inside.probabilities(stacked))
    assert read.manifest.stack_size == 4
    (tmp_path / "model.zip").write_bytes(b"no archive")
    with pytest.raises(ModelError, match="save the model again"):
        actor_from_zip(tmp_path / "model.zip")


def test_the_manifest_states_contract_envelope_and_origin(model, small):
    _, manifest = export(model.policy, small, 77)
    again = Manifest.parse(manifest.model_dump_json())
    assert again == manifest
    assert again.training.steps == 77
    assert again.envelope is not None
    assert again.envelope.interval_seconds == (30, 30)
    assert again.training.hyperparameters["agent"]["hidden_size"] == 16


def test_the_head_of_an_absent_pool_is_masked_in_actions_and_loss(model):
    width = model.observation_space.shape[0]
    observation = torch.full((200, width), 0.3)
    observation[:100, 35] = 0.0
    with torch.no_grad():
        actions, _, _ = model.policy(observation)
        _, log_probability, entropy = model.policy.evaluate_actions(observation, actions)
    assert (actions[:100, 0] == 2).all()
    assert len(actions[100:, 0].unique()) > 1
    assert torch.isfinite(log_probability).all()
    assert entropy[:100].mean() < entropy[100:].mean() - 1


def test_an_installed_pair_must_belong_together(tmp_path, model, small):
    content, manifest = export(model.policy, small, 1)
    source = tmp_path / "run"
    source.mkdir()
    (source / "manifest.json").write_text(manifest.model_dump_json())
    (source / "policy.onnx").write_bytes(content + b"x")
    with pytest.raises(ModelError, match="digest"):
        install(source, tmp_path / "models")
    (source / "policy.onnx").write_bytes(content)
    install(source, tmp_path / "models", episodes=4)
    actor = Actor.load(tmp_path / "models" / "ppo.onnx", Manifest.load(tmp_path / "models" / "ppo.json"))
    assert actor.manifest.envelope.observation.limit > 1


def test_the_command_trains_and_refuses_what_it_cannot_do(tmp_path, small):
    config = tmp_path / "config.json"
    config.write_text(small.model_dump_json())
    out = tmp_path / "out"
    done = CliRunner().invoke(command, ["--config", str(config), "--out", str(out), "--steps", "96", "--quiet"])
    assert done.exit_code == 0, done.output
    assert "mean" in done.output
    for arguments, said in (
        (["--resume"], "--out"),
        (["--ray", "local"], "--seeds 1,2,3"),
        (["--seeds", "1,2", "--seed", "3"], "leave out --seed"),
        (["--seeds", "1,b"], "whole numbers"),
        (["--seeds", "1,1"], "every seed once"),
        (["--resume", "--out", str(tmp_path / "empty")], "no resume_episode"),
    ):
        refused = CliRunner().invoke(command, arguments)
        assert refused.exit_code != 0
        assert said in refused.output


def test_the_bundled_network_is_about_as_good_as_the_rule_with_and_without_a_memory():
    """A smoke test on a few drawn stretches of the nominal service; days give the figures."""
    actor = load_bundled("ppo")
    known = {"exact_share": 1.0, "drift_share": 0.0, "fall_share": 0.0, "priced_share": 0.0, "scrape": (2,)}
    nominal = replace(RANGES, wholly_nominal_share=1.0, one_pool_share=0.0, **known)
    stretches = randomised(24, np.random.default_rng(99), 30.0, 1800, nominal)
    ours, rule, still = (
        run(stretches, one).result.j for one in (actor, load_bundled("rule"), Constant(actor.manifest))
    )
    assert ours.mean() < 1.03 * rule.mean()
    assert ours.mean() < 1.03 * still.mean()


def test_a_network_is_chosen_by_its_interval_against_the_rule():
    ruled, growing = validate(load_bundled("rule")), validate(Constant(Manifest(name="growing", stack_size=1), 2))
    assert ruled["against_rule"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    against = growing["against_rule"]
    assert against["low"] < against["mean"] < against["high"]
    rows = [{"validation": {"against_rule": {"mean": mean, "high": high}}} for mean, high in ((-2, 1), (-1, -0.5))]
    assert best_of(rows) is rows[1], "surest to be better, not best in the mean"


class Constant:
    """Always the same steps of both pools, balanced."""

    def __init__(self, manifest: Manifest, steps: int = 0) -> None:
        self.manifest, self.steps = manifest.model_copy(update={"residual": False}), steps

    def probabilities(self, stacked):
        probabilities = np.zeros((len(stacked), 13), np.float32)
        probabilities[:, [2 + self.steps, 7 + self.steps, 11]] = 1
        return probabilities


def test_a_lasting_actor_begins_by_raising_the_headroom_of_both_pools_near_the_objective(model):
    begin_with_near_misses(model.policy)
    stack = model.policy.mlp_extractor.actor_width // len(OBSERVATIONS)
    actor = NumpyActor.of(model.policy, Manifest(name="first", stack_size=stack))
    fed = np.zeros((3, stack, len(OBSERVATIONS)), np.float32)
    fed[:, -1, OBSERVATIONS.index("p95_latency")] = np.log1p([0.3, 0.8, 2.0]) / np.log1p(20.0)
    by_pool = actor.probabilities(fed.reshape(3, -1))[:, :10].reshape(3, 2, 5) @ STEPS
    assert (np.diff(by_pool, axis=0) > 0.005).all(), "the later the answers, the more"
    assert (by_pool[0] < 0).all()
    assert (by_pool[0] > -0.001).all(), "a headroom falls slowly"


def test_an_actor_on_the_rule_begins_with_no_change(model):
    begin_with_no_change(model.policy)
    observations = np.random.default_rng(0).normal(size=(400, model.observation_space.shape[0])).astype(np.float32)
    actions = model.predict(observations, deterministic=True)[0]
    assert (actions == [2, 2, 1]).all()
