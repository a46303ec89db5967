"""Episodes of any workload: the same arrivals and cold starts for every contender that is given them."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_rl.baselines.contender import cheapest_mix
from rlscaler_rl.simulation.scenario import Scenarios, from_rate
from rlscaler_rl.workloads import synthetic
from rlscaler_rl.workloads.library import recorded_part
from rlscaler_rl.workloads.names import NAMES, TRACES, Part, WorkloadError
from rlscaler_rl.workloads.recording import Recording

INITIAL_UTILIZATION = 0.8
"""Episodes begin with the cheapest replicas that carry the rate before them at this utilization."""

LOW_RPS, HIGH_RPS = 10.0, 100.0
"""Lowest and highest rate of the patterns in requests/s.

The 99th percentile of a recording becomes the higher one, which is 100/240 of the nominal service's capacity.
"""

_SEEDS = 2**32
_OFFSET = {Part.TEST: 0, Part.TUNE: _SEEDS, Part.TRAIN: 2 * _SEEDS}
"""Seeds are drawn below `_SEEDS`: no two parts share one."""


def episodes(
    name: str | Recording,
    part: Part,
    *,
    runs: int = 5,
    episodes: int = 16,
    seed: int = 0,
    duration_seconds: int = 600,
    interval_seconds: float = 30.0,
    low: float = LOW_RPS,
    high: float = HIGH_RPS,
    traces: Path | None = None,
    fold: int | None = None,
    **service: Any,
) -> Scenarios:
    """runs x episodes rows of one workload, run by run; run r of seed s is run r + 1 of seed s - 1.

    name: one of `NAMES`, or a recording of one's own. traces, fold: see `library.recording`.
    service: columns of `Scenarios` in which the service differs from the nominal one.
    A recording gives every row a block of its own, spread over the part, until there are no more (`blocks`); then
    blocks come again, with other arrivals and cold starts. Raises WorkloadError.
    """
    part = Part(part)
    seeds = row_seeds(part, runs, episodes, seed)
    if isinstance(name, Recording) or name in TRACES:
        source = name if isinstance(name, Recording) else recorded_part(name, part, traces, fold)
        # The next seed goes on with the blocks after those of this one.
        first = seed * episodes
        scenarios = _blocks(source, part, seeds, first, duration_seconds, high, interval_seconds, service)
    elif name not in NAMES:
        raise WorkloadError(f"workload {name}: choose from {', '.join(NAMES)}")
    else:
        scenarios = synthetic.make(name, seeds, episodes, duration_seconds, interval_seconds, low, high, service)
    scenarios.initial[:] = cheapest_mix(scenarios.params(), scenarios.past_rate / INITIAL_UTILIZATION)
    return scenarios


def row_seeds(part: Part, runs: int, episodes: int, seed: int) -> NDArray[np.int64]:
    """(runs x episodes,) a seed for every row; run r has those of `seed + r`."""
    drawn = [np.random.SeedSequence(seed + r).generate_state(episodes) for r in range(runs)]
    return np.concatenate(drawn).astype(np.int64) + _OFFSET[part]


def _blocks(
    source: Recording,
    part: Part,
    seeds: NDArray[np.int64],
    first: int,
    duration: int,
    high: float,
    interval: float,
    service: dict[str, Any],
) -> Scenarios:
    blocks = source.blocks(part, duration)
    # A fixed permutation spreads the first blocks over the whole part.
    order = np.random.default_rng([zlib.crc32(source.name.encode()), 5]).permutation(len(blocks))
    chosen = [blocks[i] for i in order[(first + np.arange(len(seeds))) % len(blocks)]]
    factor = high / source.reference
    rate = np.stack([block.rate for block in chosen]) * factor
    past = np.array([block.past for block in chosen]) * factor
    return from_rate(rate, seeds, interval, pattern=source.name[:16], **{"past_rate": past, **service})
