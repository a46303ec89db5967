"""Minutes of queueing in milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.harness.clock import JumpingLoop


@pytest.fixture
def in_fake_time() -> Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]:
    """Runs a coroutine function on a jumping clock that starts at 0."""

    def run(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            return runner.run(main())

    return run
