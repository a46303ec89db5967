"""Addresses: free ports of this machine, and those of a real node in its private namespace."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from itertools import islice

from rlscaler_dev.exceptions import StartError

HOST = "127.0.0.1"
LOWEST, HIGHEST = 20000, 32000
"""Below the ephemeral range of Linux (32768 up), so no outgoing connection takes a port between choice and use."""

# Private to the namespace, so every cluster has the same.
NODE_NAME = "real-1"
NODE_IP = "10.88.0.2"
NODE_PREFIX = 24
POD_RANGE = "10.89.0.0/22"
"""1,000 addresses; the kubelet runs at most 250 pods."""
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
"""First address of the range: the Service `kubernetes`."""
CLUSTER_DOMAIN = "cluster.local"

POOL = "real"
"""Value of the label `pool` of the real node."""
GATEWAY_PORT = 8000
"""Traefik's entrypoint; a Gateway's listener must name this port."""
GATEWAY_METRICS_PORT = 8082
GATEWAY_CLASS = "traefik"
KAFKA_PORT = 9092
"""Where pods find the Kafka broker, at the node's address."""


def is_free(port: int) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """`count` different free ports, none of them in `taken` (ports other clusters have recorded)."""
    candidates = random.sample(range(LOWEST, HIGHEST), HIGHEST - LOWEST)
    chosen = list(islice((port for port in candidates if port not in taken and is_free(port)), count))
    if len(chosen) == count:
        return chosen
    raise StartError(
        f"only {len(chosen)} of {count} ports between {LOWEST} and {HIGHEST} are free on {HOST}: "
        "stop other clusters (`rlscaler cluster status --all` lists them)"
    )
