"""Latency of requests in a pool of like replicas: closed forms, for the virtual service.

Service times are lognormal with a mean of 1 / `requests_per_second`. Their `spread` is the standard deviation of their
logarithm, so that 1 + cv^2 = exp(spread^2) with cv the coefficient of variation. In the steady state of c replicas at
utilization rho a request waits with probability rho^(sqrt(2 (c + 1)) - 1) (Sakasegawa, "An approximation formula
Lq = alpha rho^beta / (1 - rho)", 1977), and a wait exceeds y mean service times with probability
exp(-theta (1 - rho) y). One central queue has theta = 2 c / (1 + cv^2) (Whitt, "Approximations for the GI/G/m queue",
1993); a router that picks the least loaded replica comes close to it near saturation only, which the exponent of rho in
`_decay` states (fitted to the simulator's request level, 1 to 32 replicas). Within a replica that works on several
requests at a time there is one queue.
"""

from __future__ import annotations

from math import erfc, exp, log, sqrt
from statistics import NormalDist

import numpy as np

from rlscaler_core.decision.types import Float

HIGHEST_UTILIZATION = 0.999
"""The highest utilization that has a steady state; requests beyond it wait in the backlog."""

USUAL_SPREAD = sqrt(log(1 + 0.5**2))
"""The spread where none was measured: a coefficient of variation of 0.5."""

_MU = -(USUAL_SPREAD**2) / 2
_GRID = np.linspace(0.0, 16.0, 16 * 32 + 1)
_EXCEEDS = np.array([1.0] + [0.5 * erfc((log(x) - _MU) / (USUAL_SPREAD * sqrt(2))) for x in _GRID[1:].tolist()])
_PER_UNIT = 32
_PARTS = 6
_DEVIATES = np.array([NormalDist().inv_cdf((i + 0.5) / _PARTS) for i in range(_PARTS)])
"""Standard normal deviates that stand for a sixth of the requests each."""


def slower_than(
    bounds: Float, rps: Float, ready: Float, utilization: Float, at_once: Float, spread: Float, seconds: Float
) -> Float:
    """Return the share (N, 2, B) of requests that take longer than `bounds` (N, B) seconds in the steady state.

    `rps`, `ready`, `utilization` (arrivals over capacity), `at_once` (requests that a replica works on at a time, 1 or
    more) and `spread` (above 0) are (N, 2). `seconds` (N, 2) is the mean time of a request beside its wait: all of the
    work on it, or the part until its first token. 1 where no replica is ready.
    """
    rho = np.clip(utilization, 0.0, HIGHEST_UTILIZATION)
    probability, decay = _waiting(np.maximum(ready, 1.0), rho, at_once, spread)
    # A mean time of work on a request is at_once / rps.
    rate = (decay * rps / at_once)[..., None]
    delayed = np.zeros((*rps.shape, bounds.shape[-1]))
    for deviate in _DEVIATES:
        left = bounds[:, None, :] - (seconds * np.exp(spread * (deviate - spread / 2)))[..., None]
        # Not above 0, where nothing counts and exp would overflow.
        part = np.exp(-rate * np.maximum(left, 0.0))
        part *= left > 0
        delayed += part
    slow = _longer(bounds[:, None, :] / seconds[..., None], spread) + probability[..., None] / _PARTS * delayed
    # Between the few service times the sum may rise a little, which a share above a bound cannot.
    falling = np.minimum.accumulate(np.minimum(slow, 1.0), axis=-1)
    return np.where((ready > 0)[..., None], falling, 1.0)


def slower_behind(bounds: Float, backlog_seconds: Float, spread: Float, seconds: Float) -> Float:
    """Return that share (N, 2, B) where a request waits for a backlog first that takes `backlog_seconds` (N, 2)."""
    return _longer((bounds[:, None, :] - backlog_seconds[..., None]) / seconds[..., None], spread)


def relaxation_rate(slo_seconds: Float, rps: Float, ready: Float, utilization: Float) -> Float:
    """Return the rate (N, 2) in 1/s at which a pool forgets its past; `slo_seconds` is (N,).

    mu (1 - sqrt(rho))^2, the relaxation rate of M/M/1 (Cohen, "The single server queue", 1982) with mu the capacity of
    all ready replicas: slow near saturation, at once far from it. At saturation, where it is 0, a queue still spreads
    like a random walk, to the length of one SLO in mu slo^2 / (1 + cv^2) seconds, cv as it usually is.
    """
    rho = np.clip(utilization, 0.0, HIGHEST_UTILIZATION)
    mu = rps * ready
    walk = exp(USUAL_SPREAD**2) / np.maximum(mu * slo_seconds[:, None] ** 2, 1e-9)
    rate: Float = np.maximum(mu * (1.0 - np.sqrt(rho)) ** 2, np.where(mu > 0, walk, 0.0))
    return rate


def _waiting(replicas: Float, rho: Float, at_once: Float, spread: Float) -> tuple[Float, Float]:
    """Return the probability of waiting (N, 2), and the decay of the wait per mean service time (N, 2)."""
    probability: Float = rho ** (np.sqrt(2 * (replicas * at_once + 1)) - 1)
    return probability, _decay(replicas, rho, at_once, spread) * (1.0 - rho)


def _decay(replicas: Float, rho: Float, at_once: Float, spread: Float) -> Float:
    alone = 2.0 * at_once / np.exp(spread**2)
    central = alone * replicas
    decay: Float = np.maximum(central * rho ** np.maximum(np.log2(replicas) - 1.0, 0.0), alone)
    return decay


def _longer(service: Float, spread: Float) -> Float:
    """Return the probability that a service time is longer than `service`, in mean service times; 1 below 0."""
    if (spread != USUAL_SPREAD).any():
        # What is as improbable at the usual spread, of which there is a table.
        power, shift = USUAL_SPREAD / spread, (spread - USUAL_SPREAD) * USUAL_SPREAD / 2
        service = np.maximum(service, 0.0) ** power[..., None] * np.exp(shift)[..., None]
    place = np.clip(service * _PER_UNIT, 0.0, len(_GRID) - 1.001)
    below = place.astype(np.intp)
    low = _EXCEEDS[below]
    share: Float = low + (_EXCEEDS[below + 1] - low) * (place - below)
    return share
