"""Replicas of a pool above the plan of the forecast rule: `status.headroom`."""

from __future__ import annotations

from rlscaler_core.api.base import Reported, Time


class PoolHeadroom(Reported):
    """Headroom of one pool."""

    percent: float
    """Capacity that is planned above the need of the same load, in percent of it; below 0 it is less."""
    since: Time | None = None
    """Since when it has been above, or below, the plan."""


class HeadroomStatus(Reported):
    """Headroom that the steps of the network have made; a pool without one is absent."""

    gpu: PoolHeadroom | None = None
    """Headroom of the GPU pool."""
    cpu: PoolHeadroom | None = None
    """Headroom of the CPU pool."""
