"""A broker without a control plane: for tests of streams, and for measurements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rlscaler_dev.cluster import launcher, pki
from rlscaler_dev.cluster.kafka import component
from rlscaler_dev.cluster.kafka.jars import Jars
from rlscaler_dev.cluster.state import RUNNING, ClusterState


@contextmanager
def broker_alone(name: str, jars: Jars) -> Iterator[ClusterState]:
    """A broker on loopback, as the only component of a cluster of that name; nothing of it is left afterwards.

    `Broker(launcher.layout_of(cluster))` says where it listens. Raises StartError with the end of its log.
    """
    cluster = ClusterState(name, phase=RUNNING)
    try:
        cluster.save()
        layout = launcher.layout_of(cluster)
        pki.create(layout.directory / "pki")
        layout.targets_dir.mkdir()
        component.start(cluster, partial(launcher.layout_of, cluster), jars, lambda text: None)
        yield cluster
    finally:
        launcher.clean(cluster.name)
