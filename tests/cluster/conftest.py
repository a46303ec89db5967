"""One real control plane for the whole session, under a name and on ports of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psutil
import pytest

from rlscaler_dev.cluster import api
from rlscaler_dev.cluster.api import ClusterInfo
from tests.harness.control_plane import own_cluster

FAST_COLD_STARTS = {"gpu": (1.0, 2.0), "cpu": (0.2, 0.8)}
"""Seconds; the defaults would make every test wait for most of a minute."""

_NAME = re.compile(r"pytest-(?P<pid>\d+)(-[a-z]+)?")


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterInfo]:
    """Two GPU nodes with 8 GPUs each and two CPU nodes. Never skipped: a failure says what to install."""
    for name in api.names():
        owner = _NAME.fullmatch(name)
        if owner and not psutil.pid_exists(int(owner["pid"])):
            api.down(name)
    with own_cluster(cold_start_seconds=FAST_COLD_STARTS) as started:
        yield started
