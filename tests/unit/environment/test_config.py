"""What users of a live environment may write, and what they are told when it cannot be used."""

import json

import pytest

from rlscaler_core.api import parse, to_params
from rlscaler_live.environment import KubernetesEnv, LiveEnvironmentError, create_environment_config
from rlscaler_live.environment.config import EnvironmentConfig
from rlscaler_rl.simulation.gym_env import SimulatorEnv


def test_the_fields_that_earlier_users_know_are_there_and_the_whole_is_json():
    config = create_environment_config(namespace="workloads", locust_url="http://127.0.0.1:8089")
    known = {
        "namespace": "workloads",
        "prometheus_url": "http://127.0.0.1:9090",
        "locust_url": "http://127.0.0.1:8089",
        "episode_duration": 300,
        "action_interval": 30,
        "min_replicas": 1,
        "max_replicas": 10,
        "latency_weight": 0.4,
        "throughput_weight": 0.3,
        "efficiency_weight": 0.2,
        "stability_weight": 0.1,
    }
    assert known.items() <= config.items()
    assert create_environment_config(**json.loads(json.dumps(config))) == config


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name_space": "x"}, "environment.name_space: no such field; there are namespace"),
        ({"episode_duration": 100}, "episode_duration 100 is no multiple of action_interval 30"),
        ({"min_replicas": 5, "max_replicas": 3}, "min_replicas 5 is above max_replicas 3"),
        ({"gpu": None, "cpu": None}, "at least one pool is needed"),
        ({"locust_url": "http://a", "service_url": "http://b"}, "exclude each other"),
        ({"prometheus_url": "127.0.0.1:9090"}, "environment.prometheus_url"),
        ({"min_replicas": 2}, "gpu.start_replicas 1 is outside min_replicas..max_replicas"),
    ],
)
def test_what_cannot_be_used_is_named(changes, said):
    with pytest.raises(LiveEnvironmentError) as caught:
        create_environment_config(**changes)
    assert said in caught.value.message


def test_the_spaces_are_those_of_the_simulator():
    live, simulated = KubernetesEnv(), SimulatorEnv()
    assert live.observation_space == simulated.observation_space
    assert live.action_space == simulated.action_space


def test_the_operator_is_told_the_service_as_a_policy():
    policy = parse(EnvironmentConfig(namespace="workloads", max_replicas=6, slo_ms=500, http_route="chat").policy())
    params = to_params(policy.spec)
    assert policy.service == "chat"
    assert policy.spec.backend("gpu") == "chat-gpu"
    assert params.max_replicas.tolist() == [[6, 6]]
    assert params.requests_per_second.tolist() == [[20.0, 4.0]]
    assert params.slo_ms.tolist() == [500.0]


def test_an_objective_that_does_not_exist_is_named():
    with pytest.raises(LiveEnvironmentError, match="choose from slo_cost"):
        KubernetesEnv({"objective": "fun"})


def test_an_environment_that_was_never_reset_says_so():
    env = KubernetesEnv()
    with pytest.raises(LiveEnvironmentError, match="call reset first"):
        env.step(env.action_space.sample())
    env.close()
