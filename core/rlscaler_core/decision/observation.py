"""The observation: ten numbers made of samples, the contract by which a network is fed them, history and stack."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision import forecast
from rlscaler_core.decision.belief import believed, note
from rlscaler_core.decision.belief import learn as learn_capacity
from rlscaler_core.decision.clock import on_the_clock_of
from rlscaler_core.decision.error_budget import count
from rlscaler_core.decision.exceptions import ContractMismatchError
from rlscaler_core.decision.forecaster.learn import learn
from rlscaler_core.decision.forecaster.memory import is_kept
from rlscaler_core.decision.headroom import NEAR, factors, note_near_misses
from rlscaler_core.decision.peaks import note_rates
from rlscaler_core.decision.readiness import Prices
from rlscaler_core.decision.starts import prepared_loads
from rlscaler_core.decision.tables import arrivals_known, capacity_unknown, known
from rlscaler_core.decision.types import (
    CPU,
    GPU,
    OBSERVATIONS,
    Bool,
    Float,
    Float32,
    Int,
    Observation,
    Params,
    Samples,
    SignalState,
    State,
    both,
    either,
    total,
)
from rlscaler_core.decision.units import about_a_request

CONTRACT_VERSION = "rlscaler.io/observation/v4"

RETRAIN = (
    "train it again with `rlscaler train`, with `rlscaler train --for` where it was trained for one service, or with "
    "`rlscaler streams train` where it was trained for consumers"
)
"""Remedy in errors for a network that was trained under another contract."""

# Copies of the first observation would look like minutes of quiet: with them a network missed a spike (J 15, not 5).
NEUTRAL = (0.5, 0.0, 0.5, 0.1, 0.5, 0.0, 0.0, 0.0, 0.0, 0.8)
"""The values that are fed where an observation is not known or does not apply: those of a middling service at rest."""


@dataclass(frozen=True, slots=True)
class ObservationContract:
    """Constants of the normalisation; part of the manifest, so that an artefact carries its own."""

    stack_size: int = 4
    neutral: tuple[float, ...] = NEUTRAL
    utilization_scale: float = 100.0
    latency_log_scale: float = 20.0
    """p95 is fed as log1p(p95 / SLO) / log1p(latency_log_scale): 1 at twenty times the SLO."""
    replicas_scale: float = 10.0
    clip: float = 3.0
    """Nothing is fed above this, so that one absurd sample does not leave the trained range."""
    prices: Prices | None = None
    """The forecast is of the load that capacity is held for at these prices, where something was learned of the
    service; None = it knows the last three minutes."""


_SAME_SAMPLE_SECONDS = 1e-3

_AGE_OF = np.array([1, 5, 3, 4, 0, 5, 5, 0, 4, 0])
"""The column of `Samples.age_seconds` behind each of the observations."""


def sense(params: Params, state: State, samples: Samples) -> State:
    """Remember the arrival rate where it is known and its raw sample is newer than the last one, and learn of it.

    Late requests that were counted since the last tick go to the error budget.

    Call it at every sensing tick, before `observe` or `decide`. A row's history shifts only when it grows.
    """
    state = note(params, count(params, on_the_clock_of(samples, state), samples), samples)
    taken = samples.time - samples.age_seconds[:, 0]
    fresh = arrivals_known(params, samples) & ~(taken <= state.rate_time[:, -1] + _SAME_SAMPLE_SECONDS)
    stale = np.flatnonzero(~fresh)
    if len(stale) == len(fresh):
        return state
    state = note_rates(params, state, samples.arrival_rate, taken, fresh)
    recent, calendar = state.load_recent, state.load_calendar
    if is_kept(recent):
        requests = samples.arrival_rate / about_a_request(params.unit)
        recent, calendar = learn(params, recent, calendar, taken, requests, fresh)
    return replace(
        state,
        load_recent=recent,
        load_calendar=calendar,
        rate_time=_shifted(state.rate_time, taken, stale),
        rate_value=_shifted(state.rate_value, samples.arrival_rate, stale),
    )


def _shifted(history: Float, newest: Float, stale: NDArray[np.intp]) -> Float:
    """Shift the history (N, H) by one column and append `newest` (N,), except in the `stale` rows."""
    moved = np.empty_like(history)
    moved[:, :-1] = history[:, 1:]
    moved[:, -1] = newest
    if stale.size:
        moved[stale] = history[stale]
    return moved


def observe(params: Params, state: State, samples: Samples, contract: ObservationContract) -> tuple[Observation, State]:
    """Return the ten numbers of this action interval, and the state with them on the stack.

    Call it after `sense`, once an interval.

    Raises ContractMismatchError where the state's stack is not the contract's.
    """
    if state.stack.shape[1] != contract.stack_size:
        raise ContractMismatchError(
            f"State.stack holds {state.stack.shape[1]} observations and the actor expects {contract.stack_size}; "
            "make the state with initial_state(n, manifest.stack_size)"
        )
    state = note_near_misses(params, learn_capacity(params, state, samples), samples)
    params = believed(params, state)
    signal_known = known(params, samples)
    status = _status(params, state, samples, signal_known)
    values = _values(params, state, samples, contract.prices)
    values[status != SignalState.KNOWN] = np.nan
    fed = _fed(params, samples, values, contract)
    observation = Observation(
        values=values,
        fed=fed,
        status=status,
        age_seconds=_ages(samples),
        required_unknown=_required_unknown(params, samples, signal_known, status),
    )
    return observation, _stacked(state, fed, contract)


def stacked_input(state: State) -> Float32:
    """Return the network's input (N, 10 * k), the oldest observation first, as an array of its own."""
    return state.stack.reshape(len(state.stack), -1).copy()


def _status(params: Params, state: State, samples: Samples, signal_known: Bool) -> Int:
    """Return the SignalState (N, 10) of each observation."""
    status = np.empty((len(samples.time), len(OBSERVATIONS)), np.int32)
    status[...] = np.where(signal_known[:, _AGE_OF], SignalState.KNOWN, SignalState.UNKNOWN)
    status[~signal_known[:, 5], 9] = SignalState.UNKNOWN
    status[either(capacity_unknown(params)), 4] = SignalState.UNKNOWN
    status[either(capacity_unknown(params)), 9] = SignalState.UNKNOWN
    status[~either(params.present & (samples.spec_replicas > 0)), 9] = SignalState.NOT_APPLICABLE
    serving = params.present & ((samples.ready_replicas > 0) | ~signal_known[:, 5:6])
    status[~serving[:, CPU], 0] = SignalState.NOT_APPLICABLE
    status[:, 1] = np.where(params.stream, SignalState.NOT_APPLICABLE, SignalState.KNOWN)
    told = np.where(params.stream, signal_known[:, 0], np.isfinite(state.headroom[:, NEAR]))
    idle = signal_known[:, 0] & (samples.arrival_rate == 0)
    # A service without load has no near misses to know of.
    status[:, 8] = np.where(told, SignalState.KNOWN, np.where(idle, SignalState.NOT_APPLICABLE, SignalState.UNKNOWN))
    status[~serving[:, GPU], 2] = SignalState.NOT_APPLICABLE
    status[idle, 3] = SignalState.NOT_APPLICABLE
    status[:, 5:7][~params.present] = SignalState.NOT_APPLICABLE
    return status


def _required_unknown(params: Params, samples: Samples, signal_known: Bool, status: Int) -> Bool:
    """Return where (N,) arrival rate or replicas are unknown, or a pool has neither p95 nor a utilization to go by."""
    latency = status[:, 3] != SignalState.UNKNOWN
    idle = ~params.present | (samples.spec_replicas <= 0)
    informed = idle | signal_known[:, [3, 1]] | latency[:, None]
    return ~(both(informed) & signal_known[:, 0] & signal_known[:, 5])


def _values(params: Params, state: State, samples: Samples, prices: Prices | None) -> Float:
    """Return the observations (N, 10) in the units people read; the caller overwrites unknown ones."""
    values = np.empty((len(samples.time), len(OBSERVATIONS)))
    values[:, 0] = samples.cpu_utilization
    pools = np.maximum(total(params.present.astype(np.float64)), 1.0)
    values[:, 1] = 100 * (total(np.where(params.present, factors(state), 0.0)) / pools - 1)
    values[:, 2] = samples.gpu_utilization
    values[:, 3] = samples.p95_ms
    capacity = np.where(params.present, params.max_replicas * params.requests_per_second, 0.0)
    values[:, 4] = samples.arrival_rate / np.maximum(total(capacity), 1e-9) * 100
    values[:, 5:7] = samples.spec_replicas
    history = forecast.recent(state.rate_time, state.rate_value, samples.time)
    upper = forecast.upper_of(history, horizon_seconds(params))
    if prices is not None:
        upper, _ = prepared_loads(params, state, samples, upper, prices)
    request = about_a_request(params.unit)
    with np.errstate(invalid="ignore"):
        trend = forecast.load_trend(upper / request, samples.arrival_rate / request)
    values[:, 7] = np.where(np.isnan(trend), 0.0, trend)
    values[:, 8] = state.headroom[:, NEAR]
    if params.stream.any():
        values[:, 8] = np.where(params.stream, forecast.variance_of(history), values[:, 8])
    ordered = total(capacity_of_replicas(params, samples.spec_replicas))
    with np.errstate(invalid="ignore", divide="ignore"):
        values[:, 9] = 100 * np.fmax(upper, samples.arrival_rate) / ordered
    return values


def capacity_of_replicas(params: Params, replicas: Int) -> Float:
    """Return the requests/s (N, 2) that `replicas` (N, 2) answer; 0 for a pool that is not there."""
    return np.where(params.present, replicas * params.requests_per_second, 0.0)


def horizon_seconds(params: Params) -> Float:
    """Return the seconds (N,) that the forecast looks ahead: two cold starts of the slowest pool there is."""
    cold = np.where(params.present, params.cold_start_seconds, 0.0)
    return 2 * np.maximum(cold[:, 0], cold[:, 1])


def _fed(params: Params, samples: Samples, values: Float, contract: ObservationContract) -> Float32:
    """Return the dimensionless observations (N, 10); the neutral value where `values` (N, 10) is NaN."""
    fed = values.copy()
    fed[:, :3] /= contract.utilization_scale
    fed[:, 3] = np.log1p(fed[:, 3] / params.slo_ms) / np.log1p(contract.latency_log_scale)
    with np.errstate(invalid="ignore", divide="ignore"):
        load = samples.arrival_rate / total(capacity_of_replicas(params, samples.ready_replicas))
    fed[:, 4] = np.where(np.isnan(values[:, 4]), np.nan, np.where(samples.arrival_rate > 0, load, 0.0))
    fed[:, 5:7] /= params.step_size * contract.replicas_scale
    fed[:, 9] /= contract.utilization_scale
    np.clip(fed, -contract.clip, contract.clip, out=fed)
    return np.where(np.isnan(fed), contract.neutral, fed).astype(np.float32)


def _ages(samples: Samples) -> Float:
    return samples.age_seconds[:, _AGE_OF]


def _stacked(state: State, fed: Float32, contract: ObservationContract) -> State:
    """Push `fed` (N, 10) on the stack.

    Before a row's first observation nothing is known, so the neutral value stands there: copies of the first one
    would look like a long quiet.
    """
    stack = np.empty_like(state.stack)
    stack[:, :-1] = state.stack[:, 1:]
    stack[:, -1] = fed
    first = state.stacked == 0
    if first.any():
        stack[first, :-1] = contract.neutral
    return replace(state, stack=stack, stacked=np.minimum(state.stacked + 1, stack.shape[1]))
