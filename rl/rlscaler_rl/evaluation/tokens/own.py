"""One token service by its policy: its objectives, its server and its load, as episodes of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from rlscaler_core.api import offline
from rlscaler_core.decision.types import GPU, Float, Params
from rlscaler_core.decision.units import SIGNALS, UNITS
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tokens.load import Load
from rlscaler_rl.simulation.tokens.drawn import World
from rlscaler_rl.simulation.tokens.episode import Demand
from rlscaler_rl.simulation.tokens.servers import Server
from rlscaler_rl.simulation.tokens.services import Requests, Services

LoadOf = Callable[[Server, float, float], Load]
"""Returns the load of a server with objectives of the first token and of each further one, in seconds."""

START_SPREAD = 0.15
"""A pod starts in a time that is up to this share of `coldStartSeconds` shorter or longer."""


@dataclass(frozen=True, slots=True)
class OwnService:
    """A token service with the policy that scales it."""

    name: str
    namespace: str
    params: Params  # one row
    server: Server
    token_seconds: float
    load: Load
    demand: Demand  # one row: weights of the policy, and the capacity by load tests

    @classmethod
    def read(cls, path: Path, load: LoadOf, server: Server) -> Self:
        """Return the service of the policy in a file. Raises EvaluationError naming the file, the field and the
        remedy."""
        try:
            policy = offline.read_object(path)[1]
            about = offline.about(policy)
        except ValueError as error:
            raise EvaluationError(str(error)) from error
        params = about.params
        _check(params, path)
        token_seconds = (policy.spec.slo.time_per_output_token_milliseconds or np.inf) / 1000
        whole = load(server, float(params.slo_ms[0]) / 1000, token_seconds)
        weights = policy.spec.capacity.token_weights
        row = np.ones(1)
        demand = Demand(
            prompt_weight=row * weights.prompt,
            answer_weight=row * weights.answer,
            capacity=row * whole.weights.capacity,
            per_second=row * whole.usual.per_second,
            tokens=np.array([[whole.usual.prompt, whole.usual.answer]]),
        )
        return cls(about.name, about.namespace, params, server, token_seconds, whole, demand)

    def world(self, parts: Sequence[Load], seed: int = 0) -> World:
        """Return the service once for each part of its load, all of one length, each with cold starts of its own."""
        n, params = len(parts), self.params
        low, high = int(params.min_replicas[0, GPU]), int(params.max_replicas[0, GPU])
        cold, first = float(params.cold_start_seconds[0, GPU]), float(params.slo_ms[0]) / 1000
        begins = np.array([(part.requests.arrived < 60).sum() / 60 for part in parts])
        services = Services.of(
            [self.server] * n,
            seed=seed,
            first_seconds=first,
            token_seconds=self.token_seconds,
            patience=max(30.0, 4 * first),
            cold_start_low=(1 - START_SPREAD) * cold,
            cold_start_high=(1 + START_SPREAD) * cold,
            initial=np.clip(np.ceil(1.2 * begins / self.load.usual.per_second), low, high),
            min_replicas=low,
            max_replicas=high,
        )
        counts = [len(part.requests.arrived) for part in parts]
        columns = zip(*(part.requests[1:] for part in parts), strict=True)
        requests = Requests(np.cumsum([0, *counts]), *(np.concatenate(column) for column in columns))
        demand = self.demand.take(np.zeros(n, np.intp))
        return World((self.server.label,) * n, services, requests, demand, demand, parts[0].seconds)

    def policies(self, off: Float) -> Params:
        """Return the policy once for each factor (N,) on its declared capacity."""
        many = self.params.take(np.zeros(len(off), np.intp))
        return replace(many, requests_per_second=many.requests_per_second * off[:, None])


def _check(params: Params, path: Path) -> None:
    unit = UNITS[params.unit[0]]
    if unit != "tokens":
        raise EvaluationError(
            f"{path}: capacity.unit is {unit}; set it to tokens, or play the policy with `rlscaler simulate`"
        )
    signal = SIGNALS[params.slo_signal[0]]
    if signal != "ttft":
        # Requests are judged by the first token and the further ones, and the policy has to see the same.
        raise EvaluationError(
            f"{path}: slo.signal is {signal}; set it to ttft, with the objective of the first token in "
            "slo.latencyMilliseconds and that of each further one in slo.timePerOutputTokenMilliseconds"
        )
    if not params.present[0, GPU] or params.present[0].all():
        raise EvaluationError(f"{path}: targets: the token level plays one pool; keep targets.gpu alone")
    if params.min_replicas[0, GPU] < 1:
        raise EvaluationError(f"{path}: targets.gpu.minReplicas is 0; the token level needs at least 1")
