"""The process that Kafka is asked from: it may end or hang at any moment, and the operator goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import psutil
import pytest

from rlscaler_operator.exceptions import MetricsError
from rlscaler_operator.sensing import brokers as module
from rlscaler_operator.sensing.brokers import Brokers
from rlscaler_operator.sensing.kafka_access import KafkaAccess
from rlscaler_operator.sensing.kafka_client import GroupTopics
from tests.harness.waiting import until

CLOSED = KafkaAccess(("127.0.0.1:1",))
WANTED = GroupTopics("billing", ("orders",))


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    one = Brokers(1.0)
    yield one
    one.close()


@pytest.fixture
def silent() -> Iterator[KafkaAccess]:
    """A broker that takes connections and never answers, so that a question is under way for seconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield KafkaAccess((f"127.0.0.1:{server.getsockname()[1]}",))


def runs(one: psutil.Process) -> bool:
    try:
        return module.MODULE in one.cmdline()
    except (psutil.ZombieProcess, psutil.NoSuchProcess):
        return False


def child() -> psutil.Process | None:
    return next(filter(runs, psutil.Process().children()), None)


def reason(brokers: Brokers, access: KafkaAccess) -> str:
    answer = asyncio.run(brokers.look(access, [WANTED]))[WANTED]
    assert isinstance(answer, MetricsError)
    return answer.reason


def test_a_broker_that_is_not_there_is_named(brokers):
    assert reason(brokers, CLOSED) == "BrokerUnreachable"


def end(one: psutil.Process, sent: signal.Signals) -> None:
    """Send a signal once the process is in the middle of a question."""
    until(lambda: len(one.net_connections()) > 0)
    os.kill(one.pid, sent)


@pytest.mark.parametrize("sent", [signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_costs_nothing(brokers, silent, sent):
    reason(brokers, CLOSED)
    first = child()
    assert first is not None
    ends = threading.Thread(target=end, args=(first, sent))
    ends.start()
    assert reason(brokers, silent) == "BrokerUnreachable", "a new process has asked again"
    ends.join()
    second = child()
    assert second is not None
    assert second.pid != first.pid


def test_questions_about_several_clusters_share_the_new_process(brokers, silent):
    reason(brokers, CLOSED)
    first = child()
    assert first is not None
    ends = threading.Thread(target=end, args=(first, signal.SIGKILL))
    ends.start()

    async def both() -> None:
        await asyncio.gather(brokers.look(silent, [WANTED]), brokers.look(CLOSED, [WANTED]))

    asyncio.run(both())
    ends.join()
    assert len([one for one in psutil.Process().children() if runs(one)]) == 1


def test_what_crashes_it_again_is_not_asked_for_ever(brokers, silent):
    reason(brokers, CLOSED)
    first = child()
    assert first is not None

    def second() -> psutil.Process | None:
        found = child()
        return None if found is None or found.pid == first.pid else found

    def crash() -> None:
        end(first, signal.SIGSEGV)
        until(lambda: second() is not None)
        again = second()
        assert again is not None
        end(again, signal.SIGSEGV)

    ends = threading.Thread(target=crash)
    ends.start()
    answer = asyncio.run(brokers.look(silent, [WANTED]))[WANTED]
    ends.join()
    assert isinstance(answer, MetricsError)
    assert answer.reason == "KafkaClientEnded"
    assert "SIGSEGV" in str(answer)


def test_one_that_ended_while_it_was_idle_costs_nothing(brokers):
    reason(brokers, CLOSED)
    first = child()
    assert first is not None
    first.kill()
    until(lambda: child() is None)
    assert reason(brokers, CLOSED) == "BrokerUnreachable"


def test_one_that_hangs_is_ended_and_the_loop_goes_on(brokers, monkeypatch):
    reason(brokers, CLOSED)
    first = child()
    assert first is not None
    first.suspend()
    monkeypatch.setattr(module, "START_SECONDS", 0.0)
    monkeypatch.setattr(module, "ROUNDS", 0.5)
    many = [
        GroupTopics(f"group-{number}", ("x" * 200,)) for number in range(20_000)
    ]  # more than a socket's buffer takes

    async def hang() -> str:
        ticks = 0
        asked = asyncio.create_task(brokers.look(CLOSED, many))
        while not asked.done():
            await asyncio.sleep(0)
            ticks += 1
        assert ticks > 100, "other tasks went on"
        return asked.result()[many[0]].reason

    assert asyncio.run(hang()) == "KafkaClientEnded"
    monkeypatch.undo()
    assert reason(brokers, CLOSED) == "BrokerUnreachable"


def test_it_ends_with_the_operator(brokers):
    reason(brokers, CLOSED)
    one = child()
    assert one is not None
    threads = threading.active_count()
    brokers.close()
    until(lambda: not runs(one))
    until(lambda: threading.active_count() < threads)


def test_it_imports_little():
    """It costs memory beside the operator: no numpy, no ONNX Runtime, no API models."""
    heavy = "[name for name in ('numpy', 'onnxruntime', 'pydantic') if name in sys.modules]"
    code = f"import sys, {module.MODULE}; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
