"""When requests are sent: a Poisson process that follows a load pattern."""

from __future__ import annotations

import numpy as np

from rlscaler_loadgen.patterns import Float


def poisson_arrivals(rate: Float, rng: np.random.Generator) -> Float:
    """Rising send times in seconds of the run, given the rate in requests/s of each second, (duration_s,).

    The number of arrivals in a second is Poisson, their times within it are uniform. Equal seeds give equal
    times, so that contenders meet the same requests at the same moments.
    """
    counts = rng.poisson(rate)
    return np.sort(np.repeat(np.arange(len(rate), dtype=float), counts) + rng.uniform(0, 1, int(counts.sum())))
