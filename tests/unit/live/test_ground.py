"""Which cluster a configuration means, and which of its fields are whose."""

import json
import os
import signal

import pytest

from rlscaler_core.models import load_bundled
from rlscaler_live.environment import create_environment_config
from rlscaler_live.ground import ground, make_env, read_parts
from rlscaler_rl.evaluation.errors import EvaluationError


def write(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_dumped_environment_configuration_goes_to_the_environment_but_for_the_weights(tmp_path):
    environment = create_environment_config(namespace="workloads", kubeconfig="/tmp/k")
    live, *others = read_parts(write(tmp_path, {"environment": environment, "agent": {"gamma": 0.9}}))
    assert others == [{}, {"gamma": 0.9}]
    assert live == {name: value for name, value in environment.items() if not name.endswith("_weight")}


def test_fields_of_the_simulator_alone_stay_with_training(tmp_path):
    live, simulated, _ = read_parts(write(tmp_path, {"environment": {"episode_duration": 300, "envs": 64}}))
    assert (live, simulated) == ({"episode_duration": 300}, {"envs": 64})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ({"env": {}}, "env: the parts are"),
        ({"agent": 3}, "agent: not an object; write its fields in br"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, said):
    with pytest.raises(EvaluationError) as caught:
        read_parts(write(tmp_path, content))
    assert said in caught.value.message


def test_a_cluster_that_is_named_is_used_as_it_is(tmp_path):
    with ground({"kubeconfig": "/tmp/k", "episode_duration": 60}, tmp_path, 1, print) as place:
        assert place["kubeconfig"] == "/tmp/k"
        assert place["episode_duration"] == 60
        assert place["results"].startswith(str(tmp_path))


def test_an_environment_has_the_actors_stack():
    manifest = load_bundled("ppo").manifest
    env = make_env({}, manifest)
    assert env.observation_space.shape == (10 * manifest.stack_size,)


def test_a_signal_ends_it_in_order(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught, ground({"kubeconfig": "/tmp/k"}, tmp_path, 1, print):
        os.kill(os.getpid(), signal.SIGTERM)
    assert caught.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
