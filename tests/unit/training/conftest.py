"""A training of seconds."""

from __future__ import annotations

import pytest

from rlscaler_rl.training import validation
from rlscaler_rl.training.config import TrainingConfig

SMALL = {
    "environment": {"envs": 12, "episode_duration": 60, "action_interval": 30, "stack_size": 4},
    "agent": {
        "steps": 12 * 8 * 4,
        "buffer_size": 8,
        "batch_size": 48,
        "hidden_size": 16,
        "critic_hidden_size": 16,
        "checkpoint_episodes": 4,
        "evaluation_episodes": 8,
        "imitation_rounds": 1,
        "critic_rollouts": 1,
    },
}


@pytest.fixture
def small() -> TrainingConfig:
    return TrainingConfig.model_validate(SMALL)


@pytest.fixture
def _brief_validation(monkeypatch):
    monkeypatch.setattr(validation, "SETTINGS", ((30.0, 60),))
