"""Tasks of the engine in the background: ticks, reports and writes, none of which holds up the loop."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rlscaler_operator.state.policy import Policy

log = logging.getLogger("rlscaler.engine")

Launch = Callable[[list[Policy], Coroutine[Any, Any, None]], None]
"""The type of `Background.launch`."""


class Background:
    """Runs tasks, marks their policies as busy, and wakes the engine's loop when there is something to look at."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.failed: Callable[[Policy, Exception], None] | None = None
        """Called for each policy of a task that failed."""
        self.wake = asyncio.Event()
        """Set when the engine's loop has to look at the policies again."""
        self.next_look = math.inf
        """Monotonic time at which the loop looks at the policies by itself."""

    def launch(self, policies: list[Policy], work: Coroutine[Any, Any, None]) -> None:
        """Run `work` in the background; the policies are busy until it is done."""
        for policy in policies:
            policy.timing.busy += 1
        task = asyncio.create_task(work)
        self.tasks.add(task)

        def finished(done: asyncio.Task[None]) -> None:
            self.tasks.discard(done)
            for policy in policies:
                policy.timing.busy -= 1
            if not done.cancelled() and (error := done.exception()) is not None:
                log.error("a task of %d policies failed", len(policies), exc_info=error)
                if self.failed is not None and isinstance(error, Exception):
                    for policy in policies:
                        self.failed(policy, error)
            # A busy policy was left out of the loop's last look, and may be due before the next one.
            if any(self._is_due_before_next_look(policy) for policy in policies):
                self.wake.set()

        task.add_done_callback(finished)

    def _is_due_before_next_look(self, policy: Policy) -> bool:
        schedule = policy.timing.schedule
        return policy.observed.deleting or schedule is None or schedule.next() < self.next_look

    async def stop(self, seconds: float) -> None:
        """Wait so many seconds for the tasks to end, and cancel the rest."""
        deadline = time.monotonic() + seconds
        while self.tasks and (remaining := deadline - time.monotonic()) > 0:
            await asyncio.wait(self.tasks, timeout=remaining)
        # Cancelled writes are safe: each is a compare-and-swap that the next leader decides anew.
        for task in self.tasks:
            task.cancel()
