"""Settings of every test: no deadline for examples of Hypothesis, and the cost of each test."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.harness import cost

# The duration of an example depends on the machine; a deadline would make a busy one's pause a failure.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_configure(config: pytest.Config) -> None:
    cost.register(config)
