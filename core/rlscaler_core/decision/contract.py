"""The observation contract: how the ten numbers become what a network eats."""

from __future__ import annotations

from dataclasses import dataclass

CONTRACT_VERSION = "rlscaler.io/observation/v2"

NEUTRAL = (0.5, 0.5, 0.5, 0.1, 0.3, 0.0, 0.0, 0.0, 0.1, 0.0)
"""Fed where an observation is not known or does not apply: a middling service at rest."""


@dataclass(frozen=True, slots=True)
class ObservationContract:
    """Constants of the normalisation; part of the manifest, so that an artefact carries its own."""

    stack_size: int = 4
    neutral: tuple[float, ...] = NEUTRAL
    utilization_scale: float = 100.0
    latency_log_scale: float = 20.0
    """p95 is fed as log1p(p95 / SLO) / log1p(latency_log_scale): 1 at twenty times the SLO."""
    throughput_scale: float = 100.0
    replicas_scale: float = 10.0
    clip: float = 3.0
    """Nothing is fed above this, so that one absurd sample does not leave the trained range."""
    sees_time: bool = False
    """Feed time_in_episode; off by default, since it means nothing in production."""
