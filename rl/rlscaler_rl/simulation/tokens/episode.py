"""Play token services with one autoscaler from begin to end, and hand back checked figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.tables import initial_state, make_params
from rlscaler_core.decision.types import GPU, Float, Int, Params, Rows, Samples
from rlscaler_core.decision.units import LatencySignal, LoadUnit
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.tokens import ledger
from rlscaler_rl.simulation.tokens.demand import late
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.looks import LOOK_SECONDS, WINDOW_SECONDS, Looks, Signal
from rlscaler_rl.simulation.tokens.services import Requests, Services

INTERVAL_SECONDS = 15.0
"""Seconds between two actions of a new policy."""

NEEDED = 10.0
"""Replicas that the load of a service needs in the mean, whatever its size: J is then cost + `LATE_WEIGHT` * late
percent in the same scale for all, and a tenth of more replicas costs as much as 2 % late."""


@dataclass(slots=True)
class Demand(Rows):
    """Weights of the tokens of N services, and the load that a replica is taken to carry."""

    prompt_weight: Float  # (N,)
    answer_weight: Float  # (N,)
    capacity: Float  # (N,) weighted tokens/s of a replica
    per_second: Float  # (N,) requests/s of a replica, of the usual mix
    tokens: Float  # (N, 2) mean of a prompt and of an answer


@dataclass(slots=True)
class TokenResult(Rows):
    """Figures of every service, (N,) each."""

    j: Float  # NEEDED * replica-hours / needed ones + LATE_WEIGHT * late percent
    over_need: Float  # replica-hours over those that the requests need
    replicas: Float  # mean of the billed ones
    late_percent: Float  # % beyond the objective of TTFT or of TPOT, or without an answer
    requests: Float
    lost: Float  # requests whose clients gave up
    starts: Float  # pods
    first_p95: Float  # seconds
    token_p95: Float
    preempted: Float


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Results of `run`."""

    result: TokenResult
    level: TokenLevel


def params_of(services: Services, demand: Demand, signal: Signal, learns: bool) -> Params:
    """The policies of the services, whose replicas are the GPU pool; everything else is as in a new custom resource."""
    none = np.zeros(len(services))
    carried = demand.capacity if signal == "tokens" else demand.per_second
    cold = (services.cold_start_low + services.cold_start_high) / 2
    return make_params(
        len(services),
        present=(True, False),
        min_replicas=np.stack([services.min_replicas, none], axis=1).astype(np.int32),
        max_replicas=np.stack([services.max_replicas, none], axis=1).astype(np.int32),
        unit=LoadUnit.TOKENS if signal == "tokens" else LoadUnit.REQUESTS,
        requests_per_second=np.stack([carried, none + np.nan], axis=1),
        cold_start_seconds=np.stack([np.maximum(cold, 1.0), none + 1.0], axis=1),
        slo_ms=1000 * services.first_seconds,
        slo_signal=LatencySignal.FIRST_TOKEN,
        interval_seconds=INTERVAL_SECONDS,
        sense_seconds=LOOK_SECONDS,
        window_seconds=WINDOW_SECONDS,
        usage_seconds=WINDOW_SECONDS,
        learns_capacity=learns,
    )


def looks_per_action(params: Params) -> int:
    """Return the looks from one action to the next, for policies with one action interval."""
    return max(round(float(params.interval_seconds[0]) / LOOK_SECONDS), 1)


class Policies:
    """Policies of N services that act through `decide`, as in the operator."""

    samples: Samples
    """Samples of the last call."""

    def __init__(self, looks: Looks, params: Params, actor: ActorLike, signal: Signal) -> None:
        self._looks, self._actor, self._signal, self.params = looks, actor, signal, params
        self.state = initial_state(len(params), actor.manifest.contract.stack_size)

    def __call__(self, second: float) -> Int:
        """Return the desired replicas (N, 2), once every `LOOK_SECONDS`."""
        self.samples = self._looks.samples(self._signal)
        state = sense(self.params, self.state, self.samples)
        acts = second % (looks_per_action(self.params) * LOOK_SECONDS) == 0
        decision, _, self.state = decide(
            self.params, state, self.samples, self._actor, kind="action" if acts else "floor"
        )
        return decision.desired


def run(
    services: Services,
    requests: Requests,
    controller: Any,
    demand: Demand,
    seconds: float,
    *,
    signal: Signal = "tokens",
    learns: bool = True,
    params: Params | None = None,
) -> TokenRun:
    """Play services for some seconds.

    :param controller: an actor, which acts through `decide` as in the operator, or a contender
        (`baselines.contender`), which is called at every look and has no shield. Either sees the signal as its load.
    :param learns: the capacity of a replica is a first guess that measurements correct.
    :param params: of policies that are written already, in place of `params_of`.
    :raises LedgerError: the counters contradict one another.
    """
    level = TokenLevel(services, requests)
    params = params_of(services, demand, signal, learns) if params is None else params
    looks = Looks(
        level,
        np.stack([demand.prompt_weight, demand.answer_weight], axis=1),
        demand.per_second if signal == "mix" else None,
    )
    policies = Policies(looks, params, controller, signal) if hasattr(controller, "probabilities") else None
    rng, state = np.random.default_rng(0), initial_state(len(services), 1, forecaster=False)
    if policies is None:
        controller.reset(params)
    for second in np.arange(0.0, seconds, LOOK_SECONDS):
        looks.look()
        if policies is not None:
            desired = policies(second)
        else:
            desired, _ = controller(params, state, looks.samples(signal), rng)
        level.scale(np.clip(desired[:, GPU], services.min_replicas, services.max_replicas))
        level.advance(LOOK_SECONDS)
    ledger.check(level)
    return TokenRun(_result(level), level)


def _result(level: TokenLevel) -> TokenResult:
    requests, fleet = level.requests, level.fleet
    came = requests.arrived < level.time
    missed = late(level) & came
    waited = np.where(np.isnan(fleet.first), np.where(came, level.time - requests.arrived, np.nan), fleet.first)
    columns: dict[str, list[float]] = {name: [] for name in ("need", "late", "first_p95", "token_p95", "count")}
    for a, b in zip(requests.first[:-1], requests.first[1:], strict=True):
        here = came[a:b]
        count = max(int(here.sum()), 1)
        columns["need"].append(float(requests.need[a:b][here].sum()))
        columns["late"].append(100 * float(missed[a:b].sum()) / count)
        columns["first_p95"].append(_p95(waited[a:b][here]))
        columns["token_p95"].append(_p95(fleet.token[a:b]))
        columns["count"].append(float(count))
    need, late_percent = np.array(columns["need"]), np.array(columns["late"])
    billed = ledger.billed(level)
    over = billed / np.maximum(need, 1e-9)
    return TokenResult(
        j=NEEDED * over + LATE_WEIGHT * late_percent,
        over_need=over,
        replicas=billed / level.time,
        late_percent=late_percent,
        requests=np.array(columns["count"]),
        lost=fleet.service["lost"].copy(),
        starts=fleet.service["created"] - level.services.initial.astype(np.float64),
        first_p95=np.array(columns["first_p95"]),
        token_p95=np.array(columns["token_p95"]),
        preempted=fleet.service["preempted"].copy(),
    )


def _p95(values: Float) -> float:
    known = values[np.isfinite(values)]
    return float(np.percentile(known, 95)) if known.size else float("nan")
