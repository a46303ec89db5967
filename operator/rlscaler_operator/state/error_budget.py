"""The error budget between decision state, status and metrics. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from rlscaler_core.api import Spec
from rlscaler_core.api.spec import SLO
from rlscaler_core.api.status import SLOStatus
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.error_budget import HIGHEST_FACTOR, LOWEST_FACTOR, budget_left_now, price_factor
from rlscaler_core.decision.rule import rule_under
from rlscaler_core.decision.types import Params, Samples, State
from rlscaler_core.decision.units import SignalName


def left(params: Params, state: State, samples: Samples, objective: float) -> float:
    """Return the share of the error budget of `objective` (a share) that is left; NaN where it is not known."""
    return float(budget_left_now(params, state, samples, np.array([objective]))[0])


def late_price(params: Params, state: State, actor: ActorLike | None) -> float:
    """Return the replicas that one percent of late requests is worth now; NaN for an actor without such a price."""
    rule = None if actor is None else rule_under(actor)
    price = 0.0 if rule is None else float(np.asarray(rule.late_price).reshape(-1)[0])
    # The factor steers the price by the error budget that is left.
    return price * float(price_factor(params, state)[0]) if price > 0 else math.nan


def slo_status(params: Params, state: State, samples: Samples, actor: ActorLike | None, spec: Spec) -> SLOStatus | None:
    """Return `status.slo`; None where nothing was counted yet."""
    if math.isnan(float(state.counted_time[0])):
        return None
    share = left(params, state, samples, spec.slo.objective / 100)
    price = late_price(params, state, actor)
    return SLOStatus(
        objective=spec.slo.objective,
        budget_left=None if math.isnan(share) else round(100 * share, 2),
        late_price=None if math.isnan(price) else round(price, 4),
        price_factor=round(float(state.price_factor[0]), 6),
        requests=round(float(state.counted_requests[0]), 3),
        late=round(float(state.counted_late[0]), 3),
        latency_milliseconds=float(state.counted_slo_ms[0]),
        signal=spec.slo.signal,
        time_per_output_token_milliseconds=spec.slo.time_per_output_token_milliseconds,
        time=datetime.fromtimestamp(float(state.counted_time[0]), UTC),
    )


def counted_by(slo: SLO | SLOStatus) -> tuple[SignalName, int | None]:
    """Return the latency that `latencyMilliseconds` bounds and the objective of a second one."""
    return slo.signal, slo.time_per_output_token_milliseconds


def forget_count(state: State) -> State:
    """Return the state without the requests that were counted; the factor on the price of lateness stays."""
    none = np.full_like(state.counted_time, np.nan)
    return replace(
        state,
        counted_requests=np.zeros_like(none),
        counted_late=np.zeros_like(none),
        counted_time=none,
        counted_slo_ms=none,
    )


def restore_slo(state: State, written: SLOStatus | None) -> None:
    """Restore the counts of a former process in the state (one row), in place."""
    if written is not None:
        state.counted_requests[0], state.counted_late[0] = written.requests, min(written.late, written.requests)
        state.counted_time[0], state.counted_slo_ms[0] = written.time.timestamp(), written.latency_milliseconds
        state.price_factor[0] = min(max(written.price_factor, LOWEST_FACTOR), HIGHEST_FACTOR)
