"""What a live training is made of, before anything is played."""

import pytest

from rlscaler_live.train import AGENT, _settings
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.models import load_start


@pytest.fixture(scope="module")
def start():
    return load_start(None)


def test_an_update_is_no_longer_than_the_training(start):
    """An update of 2,048 steps of 30 s would come after 17 hours."""
    assert _settings(start, {}, AGENT | {"buffer_size": 2048, "steps": 100}).agent.buffer_size == 100
    assert _settings(start, {}, AGENT).agent.buffer_size == AGENT["buffer_size"]
    assert _settings(start, {}, AGENT | {"steps": 1}).agent.buffer_size == 2


def test_the_network_keeps_its_sizes(start):
    settings = _settings(start, {"stack_size": 4}, AGENT | {"hidden_size": 8})
    assert settings.agent.hidden_size == start.hidden_size
    assert settings.environment.stack_size == start.manifest.stack_size


def test_a_field_that_cannot_be_is_named(start):
    with pytest.raises(EvaluationError, match="buffer_size"):
        _settings(start, {}, AGENT | {"buffer_size": "long"})
