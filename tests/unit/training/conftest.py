"""A training of seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rlscaler_rl.training import validation
from rlscaler_rl.training.config import TrainingConfig

SMALL = {
    "environment": {
        "envs": 12,
        "episode_duration": 60,
        "action_interval": 30,
        "stack_size": 4,
        "trace_share": 0.0,
        "history_hours": 0,
    },
    "agent": {
        "steps": 12 * 8 * 4,
        "buffer_size": 8,
        "batch_size": 48,
        "hidden_size": 16,
        "critic_hidden_size": 16,
        "checkpoint_episodes": 4,
        "evaluation_episodes": 8,
    },
}

BRIEF = {"CONDITIONS": ((30.0, 60, True),), "WORKLOADS": ("smooth", "worldcup"), "EPISODES": 2, "HISTORY_HOURS": 0.2}


@pytest.fixture(scope="session")
def small() -> TrainingConfig:
    return TrainingConfig.model_validate(SMALL)


@pytest.fixture(scope="module", autouse=True)
def _brief_validation() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in BRIEF.items():
            patch.setattr(validation, name, value)
        _forget()
        yield
    _forget()


def _forget() -> None:
    validation.known_services.cache_clear()
    validation._of_the_rule.cache_clear()


@pytest.fixture(scope="session")
def brief_program() -> str:
    """The beginning of a program that validates as briefly."""
    lines = [f"validation.{name} = {value!r}" for name, value in BRIEF.items()]
    return "\n".join(["from rlscaler_rl.training import validation", *lines, ""])
