"""Free ports on the loopback interface."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from rlscaler_dev.cluster.exceptions import StartError

HOST = "127.0.0.1"
LOWEST, HIGHEST = 20000, 32000
"""Below the ephemeral range of Linux (32768 up), so no outgoing connection takes a port between choice and use."""


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def pick(count: int, taken: Collection[int] = ()) -> list[int]:
    """`count` different free ports, none of them in `taken` (ports other clusters have recorded)."""
    chosen: list[int] = []
    for port in random.sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST):
        if port not in taken and is_free(port):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise StartError(
        f"only {len(chosen)} of {count} ports between {LOWEST} and {HIGHEST} are free on {HOST}: "
        "stop other clusters (`rlscaler cluster status --all` lists them)"
    )
