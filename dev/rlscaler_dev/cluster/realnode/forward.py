"""Carries the host's loopback ports into the namespace, so that kubectl, helm and browsers need not enter it.

    python -m rlscaler_dev.cluster.realnode.forward PID HOST_PORT:PORT ...

PID is the namespace's first process; when that ends, so does this.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping

from rlscaler_dev.cluster.network import HOST

CLONE_NEWNET = 0x40000000
BACKLOG = 256
_CHUNK_BYTES = 1 << 16

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def enter_network(pid: int) -> None:
    """Let this thread's new sockets be of the network of process `pid`; sockets made before keep theirs."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, CLONE_NEWNET):
            error = ctypes.get_errno()
            raise OSError(error, f"cannot enter the network of process {pid}: {os.strerror(error)}")
    finally:
        os.close(descriptor)


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end, and pass the end on."""
    try:
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


async def carry(client: asyncio.StreamReader, answer: asyncio.StreamWriter, port: int) -> None:
    """One connection to `port` inside; closed at once where nothing listens there."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        answer.close()
        return
    try:
        await asyncio.gather(pump(client, writer), pump(reader, answer))
    finally:
        writer.close()
        answer.close()


def carrier(port: int) -> Handler:
    """Return the handler of a connection to `port`."""
    return lambda client, answer: carry(client, answer, port)


async def serve(listeners: Mapping[int, socket.socket], watched: int) -> None:
    """Carry connections until the process behind the descriptor `watched` ends."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(watched, ended.set)
    servers = [await asyncio.start_server(carrier(port), sock=each) for port, each in listeners.items()]
    await ended.wait()
    for server in servers:
        server.close()


def main() -> None:
    """Listen on the host, enter the network, carry."""
    pid, pairs = int(sys.argv[1]), [pair.split(":") for pair in sys.argv[2:]]
    watched = os.pidfd_open(pid)
    listeners = {int(inner): socket.create_server((HOST, int(outer)), backlog=BACKLOG) for outer, inner in pairs}
    enter_network(pid)
    asyncio.run(serve(listeners, watched))


if __name__ == "__main__":
    main()
