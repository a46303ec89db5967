"""Process of the Kafka client: `python -m rlscaler_operator.sensing.kafka_process FD SECONDS`.

A fault in librdkafka ends this process and not the operator. The process serves the connection that it inherits as file
descriptor FD until the operator closes its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from rlscaler_operator.sensing.kafka_client import Clients, Cluster, GroupTopics


async def serve(connection: Connection, timeout_seconds: float) -> None:
    """Answer each (number, cluster, wanted) with (number, answers), many at a time, until the connection ends."""
    clients = Clients(timeout_seconds)
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def answer(number: int, cluster: Cluster, wanted: Sequence[GroupTopics]) -> None:
        connection.send((number, await clients.look(cluster, wanted)))

    while True:
        try:
            request = await loop.run_in_executor(None, connection.recv)
        except (EOFError, OSError):
            return
        task = loop.create_task(answer(*request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Where the container's memory ends, the kernel should end this process and not the operator.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    asyncio.run(serve(Connection(int(sys.argv[1])), float(sys.argv[2])))
    os._exit(0)  # librdkafka's threads are not waited for


if __name__ == "__main__":
    main()
