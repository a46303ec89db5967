"""Training's configuration file."""

from __future__ import annotations

import json

import pytest

from rlscaler_rl.evaluation.settings import parts_of
from rlscaler_rl.training.config import ConfigError, TrainingConfig


def load(tmp_path, body, **given):
    path = tmp_path / "config.json"
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    return TrainingConfig.load(path, **given)


def test_defaults_need_no_file():
    config = TrainingConfig.load(None)
    assert config.agent.batch_size > 1000, "batches of 64 rows would make an update slower than the simulation"
    assert config.environment.ranges().intervals == (10, 15, 30, 60)


def test_the_two_parts_set_what_they_name_and_the_command_line_wins(tmp_path):
    body = {"environment": {"action_interval": 30, "episode_duration": 300}, "agent": {"seed": 3, "gamma": 0.9}}
    config = load(tmp_path, body, seed=4, steps=None)
    assert config.environment.ranges().intervals == (30,)
    assert config.environment.ranges().durations == (300,)
    assert (config.agent.seed, config.agent.gamma) == (4, 0.9)


def test_the_file_of_kisim_is_accepted_by_the_evaluation_without_its_own_fields(tmp_path):
    addresses = {"namespace": "default", "prometheus_url": "http://127.0.0.1:9090", "locust_url": "http://127.0.0.1:1"}
    sizes = {"episode_duration": 300, "action_interval": 30, "min_replicas": 1, "max_replicas": 10}
    weights = {"latency_weight": 0.4, "throughput_weight": 0.3, "efficiency_weight": 0.2, "stability_weight": 0.1}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"environment": addresses | sizes | weights, "use_gpu": True, "agent": {"gamma": 0.9}}))
    environment, agent = parts_of(path)
    assert environment == addresses | sizes
    assert agent == {"gamma": 0.9}
    load(tmp_path, {"environment": environment, "agent": agent})


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"agent": {"gama": 0.9}}, "agent.gama"),
        ({"agent": {"imitation_rounds": 0}}, "agent: imitation_rounds: removed .*; leave it out"),
        ({"agent": {"imitation_rounds": 6, "critic_rollouts": 6}}, "imitation_rounds and critic_rollouts: removed"),
        ({"agent": {"gamma": 1.5}}, "agent.gamma"),
        ({"environment": {"objective": "speed"}}, "environment.objective"),
        ({"environment": {"action_interval": 17}}, "environment.action_interval"),
        ({"environment": {"action_interval": 35, "episode_duration": 300}}, "no multiple"),
        ({"environment": {"latency_weight": 0.9}}, "latency_weight"),
        ({"steps": 3}, "steps"),
        ("{", "JSON"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(tmp_path, body, named):
    with pytest.raises(ConfigError, match=named):
        load(tmp_path, body)


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match=r"nowhere\.json"):
        TrainingConfig.load("nowhere.json")
