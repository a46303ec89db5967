"""Addresses inside the namespace. They are private to it, so every cluster has the same."""

from __future__ import annotations

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
