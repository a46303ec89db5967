"""Who may send a request, and when."""

import asyncio

import pytest

from rlscaler_operator.cluster.concurrency import CROWD, LONGEST_PAUSE_SECONDS, ConcurrencyLimiter, Priority


async def _settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_scale_writes_overtake_reports_and_keep_their_order():
    limiter, done, gate = ConcurrencyLimiter(1), [], asyncio.Event()

    async def work(priority, name):
        async with limiter.slot(priority):
            await gate.wait()
            done.append(name)

    tasks = [asyncio.create_task(work(Priority.REPORT, "first"))]
    await _settle()
    for priority, name in (
        (Priority.REPORT, "status"),
        (Priority.SCALE, "a"),
        (Priority.REPORT, "event"),
        (Priority.SCALE, "b"),
    ):
        tasks.append(asyncio.create_task(work(priority, name)))
    await _settle()
    gate.set()
    await asyncio.gather(*tasks)
    assert done == ["first", "a", "b", "status", "event"]


async def test_never_more_than_its_size_and_no_slot_is_lost_by_a_cancellation():
    limiter, inside, most = ConcurrencyLimiter(3), [0], [0]

    async def work():
        async with limiter.slot(Priority.SCALE):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            await asyncio.sleep(0)
            inside[0] -= 1

    tasks = [asyncio.create_task(work()) for _ in range(50)]
    await asyncio.sleep(0)
    for task in tasks[3::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most[0] == 3
    async with (
        asyncio.timeout(1),
        limiter.slot(Priority.REPORT),
        limiter.slot(Priority.REPORT),
        limiter.slot(Priority.REPORT),
    ):
        pass


async def test_a_slot_that_was_handed_to_a_cancelled_task_goes_on_to_the_next():
    limiter = ConcurrencyLimiter(1)
    held = limiter.slot(Priority.SCALE)
    await held.__aenter__()
    first = asyncio.create_task(limiter.slot(Priority.SCALE).__aenter__())
    await _settle()
    await held.__aexit__(None, None, None)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with asyncio.timeout(1), limiter.slot(Priority.REPORT):
        pass


async def test_nothing_is_sent_while_the_server_asks_for_a_pause():
    now = [100.0]
    limiter = ConcurrencyLimiter(2, clock=lambda: now[0])
    limiter.back_off(5)
    limiter.back_off(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), limiter.slot(Priority.SCALE):
            pass
    now[0] += 5
    async with asyncio.timeout(1), limiter.slot(Priority.SCALE):
        pass
    limiter.back_off(1e6)
    assert limiter._until == now[0] + LONGEST_PAUSE_SECONDS


async def test_reports_are_held_while_scale_writes_are_about_to_be_asked_for():
    limiter, done = ConcurrencyLimiter(2), []

    async def work(priority, name):
        async with limiter.slot(priority):
            done.append(name)

    with limiter.hold_reports():
        tasks = [asyncio.create_task(work(Priority.REPORT, "status"))]
        await _settle()
        tasks.append(asyncio.create_task(work(Priority.SCALE, "a")))
        await _settle()
        with limiter.hold_reports():
            tasks.append(asyncio.create_task(work(Priority.SCALE, "b")))
            await _settle()
        assert done == ["a", "b"]
    await asyncio.gather(*tasks)
    assert done == ["a", "b", "status"]


async def test_a_crowd_is_many_scale_writes_that_wait_and_ends_with_them():
    limiter, gate = ConcurrencyLimiter(2), asyncio.Event()

    async def work(priority):
        async with limiter.slot(priority):
            await gate.wait()

    tasks = [asyncio.create_task(work(Priority.SCALE)) for _ in range(2 + 2 * CROWD)]
    tasks += [asyncio.create_task(work(Priority.REPORT)) for _ in range(100)]
    await _settle()
    assert not limiter.crowded
    late = asyncio.create_task(work(Priority.SCALE))
    await _settle()
    assert limiter.crowded
    late.cancel()
    await _settle()
    assert not limiter.crowded
    gate.set()
    await asyncio.gather(*tasks)
    assert not limiter.crowded
