"""The latency of a policy with objectives on the first token and on each further one: the worse of both. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.sensing.subject import TOKEN_SIGNALS


def worse_of(latencies: Sequence[Reading], objectives: tuple[float, float]) -> Reading:
    """Return the worse of the latencies of `TOKEN_SIGNALS`, each in share of its objective.

    The value is in milliseconds of the first objective, and above it where either latency is above its own. Where one
    of them is unknown so is the worse one, unless the other is above its objective.
    """
    scaled = [
        reading._replace(value=reading.value * objectives[0] / objective)
        for reading, objective in zip(latencies, objectives, strict=True)
    ]
    missing = [(signal, each) for signal, each in zip(TOKEN_SIGNALS, scaled, strict=True) if not each.known]
    may_lower = not missing and all(each.may_lower for each in scaled)
    # Whatever the other latency is, one above its objective is overload, which has to raise replicas. Of two the
    # younger counts: a stale one would hide it.
    if late := [reading for reading in scaled if reading.known and reading.value > objectives[0]]:
        return min(late, key=lambda reading: (reading.age_seconds, -reading.value))._replace(may_lower=may_lower)
    if not missing:
        age = max(reading.age_seconds for reading in scaled)
        return max(scaled, key=lambda reading: reading.value)._replace(age_seconds=age, may_lower=may_lower)
    # Below its objective one latency does not stand for both: a renamed histogram would pass for a fast server.
    signal, unknown = missing[0]
    return unknown if len(missing) > 1 else unknown._replace(message=f"{signal}: {unknown.message}")
