"""What clients of the external scaler can do to the operator: nothing without a certificate, little with many calls."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import grpc
import psutil
import pytest

from rlscaler_operator.exceptions import OperatorError
from rlscaler_operator.keda import external_scaler_pb2 as pb
from rlscaler_operator.keda import service
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry
from tests.harness import keda
from tests.harness.waiting import until

SERVER = """
import asyncio, json, sys, time
from contextlib import AsyncExitStack, ExitStack
from rlscaler_operator.keda import service
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.registry import Registry

async def main():
    registry = Registry()
    policy = registry.put(json.loads(sys.argv[1]))
    policy.decision.desired, policy.decision.read_at = {"gpu": 3}, time.monotonic() + 1e6
    async with AsyncExitStack() as stack:
        port = await service.serve(Settings(external_scaler_port=0, external_scaler_max_calls=400), registry, stack)
        print(port, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
"""An operator's external scaler in a process of its own, whose memory is its own too; it ends with its input."""

MIB = 2**20


class Server:
    """The process, with its memory and threads after the first call."""

    def __init__(self, port: int, process: psutil.Process) -> None:
        self.port, self.process = port, process
        with ExitStack() as stack:
            [first] = connections(port, 1, stack)
            assert first.IsActive(ref(), timeout=10).result
        self._memory, self._threads = process.memory_info().rss, process.num_threads()

    def check(self) -> None:
        """All floods together have taken little."""
        assert self.process.memory_info().rss - self._memory < 48 * MIB
        assert self.process.num_threads() - self._threads <= 4


@pytest.fixture(scope="module")
def server(policy_body) -> Iterator[Server]:
    command = [sys.executable, "-c", SERVER, json.dumps(policy_body())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Server(int(process.stdout.readline()), psutil.Process(process.pid))
        assert process.stdin is not None
        process.stdin.close()


def ref() -> pb.ScaledObjectRef:
    return pb.ScaledObjectRef(name="chat", namespace="ns", scalerMetadata={"policy": "chat", "pool": "gpu"})


def connections(port: int, number: int, stack: ExitStack) -> list[Any]:
    """Clients with a connection each."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(f"127.0.0.1:{port}", options=options) for _ in range(number)]
    return [keda.client(stack.enter_context(channel)) for channel in channels]


REFUSED = {"RESOURCE_EXHAUSTED", "CANCELLED"}
"""The service's own refusal, and gRPC's where more calls wait than it keeps."""


def answer(first: Callable[[], pb.IsActiveResponse]) -> str:
    """What a call, or an open stream, says first, or why it was refused."""
    try:
        return str(first().result)
    except grpc.RpcError as error:
        return str(error.code().name)


def test_a_flood_of_streams_takes_neither_memory_nor_threads_nor_the_place_of_other_calls(server):
    with ExitStack() as stack:
        mine, *others = connections(server.port, 11, stack)
        streams = [stub.StreamIsActive(ref()) for stub in others for _ in range(300)]
        answers = Counter(answer(stream.__next__) for stream in streams)
        assert answers.keys() <= {"True", *REFUSED}
        assert 1 <= answers["True"] <= 300
        assert mine.IsActive(ref(), timeout=10).result
        server.check()
        for stream in streams:
            stream.cancel()
        until(lambda: answer(mine.StreamIsActive(ref()).__next__) == "True")


def test_a_flood_of_calls_takes_neither_memory_nor_threads(server):
    with ExitStack() as stack:
        clients = connections(server.port, 10, stack)
        calls = [stub.IsActive.future(ref(), timeout=60) for stub in clients for _ in range(500)]
        answers = {answer(call.result) for call in calls}
        assert "True" in answers
        assert answers <= {"True", *REFUSED}
        server.check()
        assert clients[0].IsActive(ref(), timeout=10).result


def test_no_more_connections_are_taken_than_allowed(server):
    """A connection that is not taken fails or is closed; those that were there before go on."""
    with ExitStack() as stack:
        [mine] = connections(server.port, 1, stack)
        assert mine.IsActive(ref(), timeout=10).result
        for _ in range(600):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        until(lambda: len(server.process.net_connections("tcp")) <= 300)
        assert mine.IsActive(ref(), timeout=10).result


def test_a_message_that_is_too_large_is_refused(server):
    with ExitStack() as stack:
        [mine] = connections(server.port, 1, stack)
        metadata = {"policy": "chat", "pool": "x" * 200_000}
        large = pb.ScaledObjectRef(name="chat", namespace="ns", scalerMetadata=metadata)
        assert answer(lambda: mine.IsActive(large, timeout=10)) == "RESOURCE_EXHAUSTED"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@pytest.mark.parametrize("tls", [False, True])
async def test_beyond_this_machine_clients_have_to_show_a_certificate(tmp_path, host, tls):
    settings = Settings(
        external_scaler_port=0, external_scaler_host=host, external_scaler_tls_dir=tmp_path if tls else None
    )
    async with AsyncExitStack() as stack:
        with pytest.raises(OperatorError, match=r"ca\.crt.*--external-scaler-anonymous"):
            await service.serve(settings, Registry(), stack)


async def test_an_administrator_may_let_anybody_ask():
    settings = Settings(external_scaler_port=0, external_scaler_host="0.0.0.0", external_scaler_anonymous=True)
    async with AsyncExitStack() as stack:
        assert await service.serve(settings, Registry(), stack)
