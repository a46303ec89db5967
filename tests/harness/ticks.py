"""Ticks of an engine without a cluster, and waiting for what follows from them."""

import asyncio
import time

from rlscaler_operator.state.schedule import Due, Schedule


async def happens(true, seconds=10):
    """Wait in an event loop until a condition holds."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def tick(engine, *policies, due=Due.SENSE):
    """Launch one tick of these policies in one batch."""
    for policy in policies:
        policy.timing.schedule = Schedule.starting(30, 5, time.monotonic())
    batch = engine.ticker.tick_batch(engine.sensing.access(policies[0]), [(policy, due) for policy in policies])
    engine.background.launch(list(policies), batch)
