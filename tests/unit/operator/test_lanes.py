"""Who may send a request, and when."""

import asyncio

import pytest

from rlscaler_operator.cluster.rate_limiter import CROWD, LONGEST_PAUSE_SECONDS, Lane, Lanes


async def _settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_scale_writes_overtake_reports_and_keep_their_order():
    lanes, done, gate = Lanes(1), [], asyncio.Event()

    async def work(lane, name):
        async with lanes.enter(lane):
            await gate.wait()
            done.append(name)

    tasks = [asyncio.create_task(work(Lane.REPORT, "first"))]
    await _settle()
    for lane, name in ((Lane.REPORT, "status"), (Lane.SCALE, "a"), (Lane.REPORT, "event"), (Lane.SCALE, "b")):
        tasks.append(asyncio.create_task(work(lane, name)))
    await _settle()
    gate.set()
    await asyncio.gather(*tasks)
    assert done == ["first", "a", "b", "status", "event"]


async def test_never_more_than_its_size_and_no_place_is_lost_by_a_cancellation():
    lanes, inside, most = Lanes(3), [0], [0]

    async def work():
        async with lanes.enter(Lane.SCALE):
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
    async with asyncio.timeout(1), lanes.enter(Lane.REPORT), lanes.enter(Lane.REPORT), lanes.enter(Lane.REPORT):
        pass


async def test_a_place_that_was_handed_to_a_cancelled_task_goes_on_to_the_next():
    lanes = Lanes(1)
    held = lanes.enter(Lane.SCALE)
    await held.__aenter__()
    first = asyncio.create_task(lanes.enter(Lane.SCALE).__aenter__())
    await _settle()
    await held.__aexit__(None, None, None)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    async with asyncio.timeout(1), lanes.enter(Lane.REPORT):
        pass


async def test_nothing_is_sent_while_the_server_asks_for_a_pause():
    now = [100.0]
    lanes = Lanes(2, clock=lambda: now[0])
    lanes.back_off(5)
    lanes.back_off(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), lanes.enter(Lane.SCALE):
            pass
    now[0] += 5
    async with asyncio.timeout(1), lanes.enter(Lane.SCALE):
        pass
    lanes.back_off(1e6)
    assert lanes._until == now[0] + LONGEST_PAUSE_SECONDS


async def test_reports_are_held_while_scale_writes_are_about_to_be_asked_for():
    lanes, done = Lanes(2), []

    async def work(lane, name):
        async with lanes.enter(lane):
            done.append(name)

    with lanes.hold_reports():
        tasks = [asyncio.create_task(work(Lane.REPORT, "status"))]
        await _settle()
        tasks.append(asyncio.create_task(work(Lane.SCALE, "a")))
        await _settle()
        with lanes.hold_reports():
            tasks.append(asyncio.create_task(work(Lane.SCALE, "b")))
            await _settle()
        assert done == ["a", "b"]
    await asyncio.gather(*tasks)
    assert done == ["a", "b", "status"]


async def test_a_crowd_is_many_scale_writes_that_wait_and_ends_with_them():
    lanes, gate = Lanes(2), asyncio.Event()

    async def work(lane):
        async with lanes.enter(lane):
            await gate.wait()

    tasks = [asyncio.create_task(work(Lane.SCALE)) for _ in range(2 + 2 * CROWD)]
    tasks += [asyncio.create_task(work(Lane.REPORT)) for _ in range(100)]
    await _settle()
    assert not lanes.crowded
    late = asyncio.create_task(work(Lane.SCALE))
    await _settle()
    assert lanes.crowded
    late.cancel()
    await _settle()
    assert not lanes.crowded
    gate.set()
    await asyncio.gather(*tasks)
    assert not lanes.crowded
