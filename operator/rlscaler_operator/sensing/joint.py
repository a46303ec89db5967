"""The latency of a policy with objectives on the first token and on each further one: the worse of both. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlscaler_core.decision.joint import worst_latency
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.sensing.subject import TOKEN_SIGNALS


def worse_of(latencies: Sequence[Reading], objectives: tuple[float, float]) -> Reading:
    """Return the worse of the latencies of `TOKEN_SIGNALS`, each in share of its objective.

    The value is in milliseconds of the first objective, and above it where either latency is above its own.
    """
    shares = np.array([reading.value for reading in latencies]) / objectives
    ages = [reading.age_seconds for reading in latencies]
    worst = int(worst_latency(shares[None], np.array([ages]))[0])
    missing = [(signal, each) for signal, each in zip(TOKEN_SIGNALS, latencies, strict=True) if not each.known]
    if worst < 0:
        signal, unknown = missing[0]
        return unknown if len(missing) > 1 else unknown._replace(message=f"{signal}: {unknown.message}")
    return latencies[worst]._replace(
        value=float(shares[worst] * objectives[0]),
        # In time by both is as old as the older one; the age of another latency is no doubt about a late one.
        age_seconds=ages[worst] if shares[worst] > 1 else max(ages),
        may_lower=not missing and all(each.may_lower for each in latencies),
    )
