"""Drawn clusters and pods of the placement simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.placement.policies import Policy
from rlscaler_core.placement.types import WHOLE_GPU, Float, Int, Nodes, Pods, empty_nodes

SLOT_S = 60.0
"""Pods end and nodes fail at multiples of this."""

MOST_SLOTS = 256
"""The longest lifetime."""

SIZES = np.array([[16_000.0, 65_536.0], [32_000.0, 131_072.0], [64_000.0, 262_144.0]])
"""Millicores and MiB of the kinds of nodes; each is as frequent as the others."""

SHORT_SLOTS, LONG_SLOTS, LONG_SHARE = 10.0, 40.0, 0.3
"""Mean lifetimes of short and long pods, and the share of long ones among those that arrive."""

MEAN_SLOTS = (1 - LONG_SHARE) * SHORT_SLOTS + LONG_SHARE * LONG_SLOTS
MEAN_CPU_MILLI = 1500.0
MEAN_GPU = 0.86
"""Mean requests of an arriving pod: millicores, and GPUs where pods need any."""

VALIDATION_SEED = 777
"""Draws the clusters that checkpoints are chosen by. No training learns from them."""

TEST_SEED = 10**12
"""Draws the clusters that are compared on. No training learns from them."""

LOADS: Mapping[Policy, float] = {Policy.EE: 0.6, Policy.LB: 0.6, Policy.EL: 0.4, Policy.GPU: 0.9}
"""Requested share of the CPU (GPU: of the GPUs) in training and comparison."""


@dataclass(frozen=True)
class Setting:
    """Number, size and load of the simulated clusters."""

    policy: Policy
    nodes: int
    clusters: int
    """Clusters that differ."""
    load: float = 0.6
    """Share of the CPU (of the GPUs for the policy GPU) that the arriving pods ask for, if all are placed."""
    lifetimes_known: bool = False
    """Whether policies see how long a pod will run."""
    lifetime_error: float = 0.0
    """Standard deviation of the logarithm of a pod's stated lifetime over its real one."""
    failures_per_day: float = 0.1
    """Failures of a node a day; it is back ten slots later, without its pods."""
    drift: float = 0.02
    """Standard deviation of the logarithm of latency, a slot."""
    hard_refuses: bool = True
    """Whether nodes above a pod's hard latency refuse it, as the server has it."""
    copies: int = 1
    """Copies of each cluster. They get the same pods, failures and drift, so that they differ by the placements alone.
    The first of each come first, then the second of each."""

    @property
    def gpus(self) -> bool:
        """Whether nodes have GPUs and pods ask for them."""
        return self.policy is Policy.GPU

    @property
    def arrivals_per_slot(self) -> float:
        """Pods that arrive on each cluster in a slot."""
        room, request = (self.nodes * 3.5, MEAN_GPU) if self.gpus else (self.nodes * SIZES[:, 0].mean(), MEAN_CPU_MILLI)
        return float(self.load * room / request / MEAN_SLOTS)


def copied(drawn: NDArray[Any], copies: int) -> NDArray[Any]:
    """Repeat the whole of `drawn` once for each copy."""
    return np.concatenate([drawn] * copies) if copies > 1 else drawn


def draw_nodes(setting: Setting, rng: np.random.Generator) -> Nodes:
    """Empty nodes (clusters, nodes): three sizes, 0 to 8 GPUs where pods ask for any, 5 to 100 ms from the users."""
    shape = (setting.clusters, setting.nodes)
    gpus = rng.choice([0.0, 2.0, 4.0, 8.0], shape) if setting.gpus else None
    nodes = empty_nodes(SIZES[rng.integers(len(SIZES), size=shape)], gpus=gpus)
    return nodes._replace(latency_ms=rng.uniform(5.0, 100.0, shape))


def draw_pods(setting: Setting, count: int, rng: np.random.Generator) -> tuple[Pods, Int]:
    """`count` pods as they arrive, and the slots for which each will run."""
    u = rng.random((4, count))
    requests = np.stack([np.ceil(250 + 3750 * u[0] ** 2), np.ceil(512 + 15_872 * u[1] ** 2)], -1)
    soft = 10.0 + 40.0 * u[2]
    mean = np.where(rng.random(count) < LONG_SHARE, LONG_SLOTS, SHORT_SLOTS)
    slots = np.clip(np.ceil(rng.exponential(mean)), 1, MOST_SLOTS - 1).astype(np.int64)
    gpus, milli = _draw_gpus(count, rng) if setting.gpus else (np.zeros(count), np.zeros(count))
    el = setting.policy is Policy.EL
    return Pods(
        requests,
        gpus,
        milli,
        np.zeros(count, np.int64),
        soft if el else np.full(count, np.nan),
        soft + 10.0 + 30.0 * u[3] if el else np.full(count, np.nan),
        said_lifetimes(setting, slots, rng),
    ), slots


def said_lifetimes(setting: Setting, slots: Int, rng: np.random.Generator) -> Float:
    """Seconds that pods say they will run, of those that they will; NaN where they say nothing."""
    if not setting.lifetimes_known:
        return np.full(slots.shape, np.nan)
    stated: Float = slots.astype(float) * SLOT_S
    if setting.lifetime_error:
        stated *= np.exp(setting.lifetime_error * rng.standard_normal(slots.shape))
    return stated


def residual_slots(count: int, rng: np.random.Generator) -> Int:
    """Slots that pods which run at a random moment still have: long ones are met more often than they arrive."""
    long = LONG_SHARE * LONG_SLOTS / MEAN_SLOTS
    mean = np.where(rng.random(count) < long, LONG_SLOTS, SHORT_SLOTS)
    return np.clip(np.ceil(rng.exponential(mean)), 1, MOST_SLOTS - 1).astype(np.int64)


def _draw_gpus(count: int, rng: np.random.Generator) -> tuple[Float, Float]:
    kind = rng.random(count)
    share = rng.choice([200.0, 250.0, 500.0, 750.0], count)
    gpus = np.where(kind < 0.1, 0.0, np.where(kind < 0.9, 1.0, rng.choice([2.0, 4.0], count)))
    milli = np.where(gpus == 0, 0.0, np.where((kind < 0.5) & (gpus == 1), share, float(WHOLE_GPU)))
    return gpus, milli
