"""Unit of a service's load and capacity of one replica: `spec.capacity`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rlscaler_core.api.base import Model
from rlscaler_core.decision.units import UnitName

Carried = Annotated[float, Field(gt=0, le=1_000_000)]


class PerReplica(Model):
    """Capacity of one ready replica of each pool."""

    gpu: Carried | None = None
    """Capacity of one replica of the GPU pool; default: measured under load."""
    cpu: Carried | None = None
    """Capacity of one replica of the CPU pool; default: measured under load."""


Weight = Annotated[float, Field(gt=0, le=1000)]


class TokenWeights(Model):
    """Weights of tokens in the load."""

    prompt: Weight = 1.0
    """Weight of a token of a prompt."""
    answer: Weight = 1.0
    """Weight of a token of an answer."""


class Capacity(Model):
    """Unit of the load, and capacity of one replica in it."""

    unit: UnitName = "requests"
    """`requests`: requests/s. `tokens`: tokens/s, of prompts and answers together, for requests that differ much in
    length; vLLM, SGLang and TGI count them. `concurrency`: requests that run or wait at the same time. A model of
    `policy` acts only for the units that its envelope names, the bundled network for requests."""
    token_weights: TokenWeights = TokenWeights()
    """Weights of the tokens of prompts and of answers, for the unit `tokens` by a preset: an answer's token takes a
    server longer. `rlscaler tokens weights` finds them by load tests. `perReplica` is then in weighted tokens/s."""
    per_replica: PerReplica | None = None
    """Capacity of one ready replica, in requests/s, tokens/s or concurrent requests. Where it is left out it is
    measured, and until then nothing is scaled down. It excludes `targets.*.requestsPerSecond`, which is the same for
    the unit `requests`."""
    trust: Literal["learned", "declared"] = "learned"
    """`learned`: a capacity that is set is a first guess, and measurements of load, utilization and latency correct it,
    from a tenth to ten times of it. `declared`: decisions keep to the set capacity, whatever is measured."""
