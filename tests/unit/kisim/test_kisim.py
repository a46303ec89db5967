"""The experiment of KISim: its JSON as it stands, its environment, its reward, a training of a few episodes."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from rlscaler_live.kisim.baselines import PATTERNS, Baseline, baselines
from rlscaler_live.kisim.config import Environment, KisimConfig, is_kisim
from rlscaler_live.kisim.env import OBSERVATIONS, KisimEnv, make_kisim
from rlscaler_live.kisim.experiment import BASELINES, UNCHANGED, played, run
from rlscaler_live.kisim.world import Interval, Replicas
from rlscaler_rl.training.config import ConfigError

PRODUCTION = {
    "environment": {
        "namespace": "workloads", "prometheus_url": "http://localhost:9090", "locust_url": "http://localhost:8089",
        "episode_duration": 300, "action_interval": 30, "max_replicas": 10, "min_replicas": 1,
        "observation_window": 60, "latency_weight": 0.4, "throughput_weight": 0.3,
        "resource_efficiency_weight": 0.2, "stability_weight": 0.1,
    },
    "agent": {
        "learning_rate": 3e-4, "hidden_size": 256, "num_layers": 3, "buffer_size": 2048, "batch_size": 64,
        "ppo_epochs": 4, "gamma": 0.99, "gae_lambda": 0.95, "clip_epsilon": 0.2, "entropy_coef": 0.01,
        "value_coef": 0.5, "max_grad_norm": 0.5,
    },
    "use_gpu": True,
    "description": "as it stands",
    "training": {"episodes": 100, "evaluation_interval": 20, "save_interval": 10},
}  # fmt: skip
"""`configs/rl_production_config.json` of KISim."""


def written(folder: Path, body: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(body))
    return path


def test_the_file_of_kisim_is_taken_as_it_stands_and_its_own_meanings_are_said_once(tmp_path):
    path = written(tmp_path, PRODUCTION)
    assert is_kisim(path)
    config = KisimConfig.load(path)
    assert config.agent.num_layers == 3
    assert config.environment.efficiency_weight == 0.2
    assert config.update_steps == 70
    assert [text.split(":")[0].split(" ")[0] for text in config.remarks()] == [
        "observation_window", "namespace,", "num_layers", "buffer_size",
    ]  # fmt: skip
    assert KisimConfig().remarks() == []


@pytest.mark.parametrize(
    ("body", "kisim"),
    [
        ({"environment": {"objective": "weighted"}}, True),
        ({"environment": {"efficiency_weight": 0.2}, "agent": {}}, True),
        ({"agent": {"entropy_coef": 0.01}}, True),
        ({"environment": {"action_interval": 30}, "agent": {"hidden_size": 64}}, False),
        ({"environment": {"objective": "slo_cost"}, "agent": {"num_layers": 2}}, False),
        ([], False),
        ({"environment": 3}, False),
    ],
)
def test_its_files_are_told_from_those_of_the_general_training(tmp_path, body, kisim):
    assert is_kisim(written(tmp_path, body)) is kisim


@pytest.mark.parametrize(
    ("part", "fields", "said"),
    [
        ("environment", {"episode_duration": 100, "action_interval": 30}, "no multiple of action_interval 30"),
        ("environment", {"max_replicas": 2}, "environment.max_replicas"),
        ("environment", {"replicas": 2}, "environment.replicas"),
        ("agent", {"batch_size": 64, "buffer_size": 32}, "agent.batch_size 64 is above agent.buffer_size 32"),
        ("training", {"episodes": 0}, "training.episodes"),
    ],
)
def test_a_wrong_value_is_named_with_its_file_and_field(tmp_path, part, fields, said):
    with pytest.raises(ConfigError, match=said) as caught:
        KisimConfig.load(written(tmp_path, {part: fields}))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_the_registered_environment_passes_both_checkers_and_rotates_the_patterns():
    made = gym.make("rlscaler_live.kisim:rlscaler/KISim-v0")
    check_env(made.unwrapped, skip_render_check=True)
    check_env_for_sb3(make_kisim())
    env = make_kisim()
    env.reset(seed=0)
    assert [env.reset()[1]["pattern"] for _ in range(5)] == [*PATTERNS[1:], *PATTERNS[:2]]
    assert [env.reset(seed=6)[1]["pattern"] for _ in range(2)] == [PATTERNS[2]] * 2


def test_actions_change_the_present_replicas_within_the_limits_and_nothing_else_does():
    env = make_kisim(KisimConfig(environment=Environment(min_replicas=1, max_replicas=5)))
    observation, info = env.reset(seed=3)
    assert info["replicas"] == (3, 3)
    assert dict(zip(OBSERVATIONS, observation.tolist(), strict=True))["gpu_replicas"] == 3
    seen = [env.step(np.array(action))[4]["replicas"] for action in ([4, 0, 1], [4, 0, 1], [2, 2, 0], [1, 3, 2])]
    assert seen == [(5, 1), (5, 1), (5, 1), (4, 2)]


class Scripted:
    """A world whose intervals are given."""

    def __init__(self, *intervals: Interval) -> None:
        self.left = list(intervals)

    def begin(self, pattern: str, seed: int, replicas: Replicas) -> Interval:
        return self.left.pop(0)

    def pass_interval(self, replicas: Replicas, placement: int) -> Interval:
        return self.left.pop(0)

    def whole_episode(self) -> tuple[float, float]:
        return 0.0, 0.0

    def close(self) -> None:
        return


def scripted(**figures: float) -> Interval:
    values = {"cpu_utilization": 50.0, "memory_utilization": 50.0, "gpu_utilization": 50.0, "p95_ms": 500.0}
    return Interval(**{**values, "throughput": 20.0, "replicas": (3, 3), **figures})


AIMS = dict.fromkeys(PATTERNS, Baseline(p95_ms=1000.0, throughput=16.0))


def test_the_reward_is_kisims_by_hand():
    better, worse = scripted(), scripted(p95_ms=4000.0, throughput=1.0, cpu_utilization=95.0, replicas=(3, 1))
    env = KisimEnv(Environment(), Scripted(scripted(), better, better, worse), AIMS)
    env.reset(options={"pattern": "ramp"})
    still = np.array([2, 2, 1])
    first = env.step(still)[4]["reward"]
    assert first == pytest.approx(
        {"latency": 0.4 * 0.5, "throughput": 0.3 * 0.25, "efficiency": 0.2, "stability": 0, "overload": 0}
    )
    assert env.step(still)[4]["reward"]["stability"] == pytest.approx(0.1 * 0.1)
    last = env.step(still)[4]["reward"]
    assert (last["latency"], last["throughput"], last["overload"]) == (0.0, 0.0, -0.5)
    assert last["efficiency"] == pytest.approx(0.2 * 0.5)


def test_frequent_changes_cost_and_gpu_replicas_are_wanted_under_a_spike():
    env = KisimEnv(Environment(), Scripted(*[scripted(replicas=(3, 1))] * 5), AIMS)
    env.reset(options={"pattern": "spike"})
    parts = [env.step(np.array([4, 2, 1]))[4]["reward"] for _ in range(3)]
    assert parts[-1]["stability"] == pytest.approx(0.1 * -0.2)
    assert parts[-1]["efficiency"] == pytest.approx(0.2 * 0.75)


def test_an_unknown_value_keeps_the_last_one_and_is_named():
    env = KisimEnv(Environment(), Scripted(scripted(p95_ms=800.0), scripted(p95_ms=np.nan)), AIMS)
    env.reset(options={"pattern": "ramp"})
    observation, _, _, _, info = env.step(np.array([2, 2, 1]))
    assert info["unknown"] == ["p95_ms"]
    assert observation[list(OBSERVATIONS).index("p95_ms")] == 800.0


def test_a_baseline_holds_one_pool_and_the_reward_improves_on_the_same_figures():
    env, aims = make_kisim(), baselines(Environment())
    gpu, cpu = (played(lambda _: UNCHANGED, env, "spike", [7, 8], replicas=replicas) for replicas in BASELINES.values())
    assert [of.replicas.mean(axis=0).tolist() for of in (gpu, cpu)] == [[3, 0], [0, 3]]
    assert (cpu.p95_ms > gpu.p95_ms).all()
    assert gpu.p95_ms.mean() == pytest.approx(aims["spike"].p95_ms, rel=0.2)
    assert aims["ramp"].p95_ms > aims["spike"].p95_ms  # the mean of both pools, the GPU pool


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*mini-batch")
def test_a_short_training_leaves_checkpoints_evaluations_a_table_and_says_that_it_learned_nothing(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("rlscaler_live.kisim.experiment.EPISODES", 4)
    body = {
        "environment": {"episode_duration": 60, "action_interval": 30},
        "agent": {"learning_rate": 1e-9, "batch_size": 4, "hidden_size": 8, "num_layers": 1},
        "training": {"episodes": 4, "evaluation_interval": 2, "save_interval": 2},
    }
    said: list[str] = []
    table = run(KisimConfig.model_validate(body), tmp_path, said.append)
    names = {path.name for path in tmp_path.iterdir()}
    assert {f"model_episode_{number}.zip" for number in (2, 4)} <= names
    assert {f"evaluation_episode_{number}.json" for number in (0, 2, 4)} <= names
    assert {"best_model.zip", "kisim.json", "kisim.png", "config.json"} <= names
    assert [row[0] for row in table.rows] == list(PATTERNS)
    assert said[-1].startswith("The actor has not learned")
    document = json.loads((tmp_path / "kisim.json").read_text())
    assert len(document["episodes"]) == 4
    assert [row["episode"] for row in document["evaluations"]] == [0, 2, 4]
    assert "2 updates" in document["sentence"]
