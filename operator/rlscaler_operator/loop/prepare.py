"""One policy's row of a batch: its measurements, its replicas, and the state of its last decision."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple

from rlscaler_core.api import Status
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import fresh_state, with_stack
from rlscaler_core.decision.decide import Kind
from rlscaler_core.decision.exceptions import ForecasterStateError
from rlscaler_core.decision.types import POOLS, Params, State
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.loop.actors import Actors
from rlscaler_operator.loop.learn import learned, size_pods
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.stabilization import (
    restore,
    restore_capacity,
    restore_forecaster,
    restore_headroom,
    restore_placement,
)
from rlscaler_operator.sensing.measure import (
    NO_STREAM,
    Readings,
    SamplesRow,
    may_lower,
    measure,
    samples_row,
    shown_latency,
)
from rlscaler_operator.sensing.results import Answers
from rlscaler_operator.sensing.streams import Stream, Streams
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.shadows import Shadows, params_and_actor
from rlscaler_operator.state.clock import unix
from rlscaler_operator.state.error_budget import counted_by, restore_slo
from rlscaler_operator.state.ownership import turned_off
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.refusals import within
from rlscaler_operator.state.schedule import Due
from rlscaler_operator.state.status import unit_of

log = logging.getLogger("rlscaler.prepare")


class Prepared(NamedTuple):
    """One policy's row of a batch, before its samples stand in one table with those of the others."""

    params: Params
    state: State
    samples: SamplesRow
    kind: Kind
    actor: ActorLike | None
    generation: int


class Preparer:
    """Prepares policies for a decision, and keeps readings, learned values and actor in them."""

    def __init__(
        self,
        settings: Settings,
        cache: WatchCache,
        metrics: Metrics,
        actors: Actors,
        shadows: Shadows,
        streams: Streams,
    ) -> None:
        self._settings, self._cache, self._metrics = settings, cache, metrics
        self._actors, self._shadows, self._streams = actors, shadows, streams

    def prepare(self, policy: Policy, due: Due, answers: Answers, elapsed_seconds: float = 0.0) -> Prepared | None:
        """Return the policy's row of the batch, `elapsed_seconds` after the answers.

        None where a target does not exist, or nothing is to be decided any more.
        """
        if not policy.running:
            return None
        deployments = policy.deployments_in(self._cache)
        if None in deployments.values():
            policy.decision.nothing_there()
            return None
        gpu, cpu = (deployments.get(pool) for pool in POOLS)
        replicas = (gpu.replicas if gpu else 0, cpu.replicas if cpu else 0)
        ready = (gpu.ready if gpu else 0, cpu.ready if cpu else 0)
        now = time.monotonic()
        stream = self._stream(policy)
        readings = self._read(policy, answers, stream, ready, now, elapsed_seconds)
        # With each action, and at the first tick: a report would otherwise replace the usage in the status by nothing.
        unsized = policy.decision.sizing is None
        if (unsized and policy.subject.sized) or (due is Due.ACTION and not unsized):
            size_pods(policy, answers, unix(now) - elapsed_seconds)
        policy.decision.learn(learned(policy, self._cache))
        policy.decision.turn_off(turned_off(policy.spec, deployments))
        policy.decision.use(*self._actors.get(policy))
        self._shadows.ensure_promotion(policy, unix(now))
        params, actor = params_and_actor(policy)
        refusals = policy.ownership.refusals
        refused = [(i, replicas[i], refusals[name]) for i, name in enumerate(policy.deployments) if name in refusals]
        params = within(params, refused, now) if refused else params
        pending, stuck = self._pending(policy, params)
        samples = samples_row(
            readings,
            elapsed_seconds,
            unix(now),
            replicas,
            ready,
            policy.observed.annotations,
            pending,
            stuck,
            # While a target rolls out old pods go and new ones come, and what is measured is of neither.
            not any(target is not None and target.rolling for target in (gpu, cpu))
            and may_lower(readings, policy.spec.metrics.max_age_seconds),
            policy.late.take(policy.spec.slo.latency_milliseconds),
            NO_STREAM if stream is None else stream.consumed,
        )
        if policy.decision.state is None:
            policy.decision.state = self._resumed(policy, params, replicas, unix(now))
        state = with_stack(policy.decision.state, policy.decision.actor)
        kind: Kind = "action" if due is Due.ACTION else "floor"
        return Prepared(params, state, samples, kind, actor, policy.observed.generation)

    def _stream(self, policy: Policy) -> Stream | None:
        """Return the newest look at the policy's stream; None where it has none."""
        if policy.spec.signal is None:
            self._streams.forget(policy.key)
        stream = None if policy.spec.signal is None else self._streams.latest(policy.key)
        policy.decision.consumes(stream)
        return stream

    def _read(
        self,
        policy: Policy,
        answers: Answers,
        stream: Stream | None,
        ready: tuple[int, int],
        now: float,
        elapsed_seconds: float,
    ) -> Readings:
        """Return the readings by signal. `now` on the monotonic clock."""
        subject = policy.subject
        # Another unit or latency: earlier counts and series would be compared with it.
        if policy.decision.count_in(subject.load, policy.spec.slo):
            policy.late.forget()
            self._metrics.forget(*policy.key)
        readings = measure(answers, subject, ready)
        if stream is not None:
            readings |= {"arrival_rate": stream.arrival_rate, "p95_latency": stream.p95_latency}
        latency = shown_latency(answers, subject, readings) if stream is None else stream.p95_latency
        policy.decision.measured(readings, latency, now - elapsed_seconds, policy.spec.metrics.max_age_seconds)
        return readings

    def _resumed(self, policy: Policy, params: Params, replicas: tuple[int, int], now: float) -> State:
        """Return the state in the policy's status, written by this or another process. `now` in unix seconds."""
        subject = policy.subject
        written = Status.model_validate(policy.outbox.status)
        state = fresh_state(policy.decision.actor, replicas, now)
        restore_placement(state, written.placement)
        try:
            if unit_of(policy.outbox.status) == subject.unit:
                restore_forecaster(state, written.forecaster)
        except ForecasterStateError as error:
            log.warning("%s/%s: %s", *policy.key, error)
        if written.slo is not None and counted_by(written.slo) == counted_by(policy.spec.slo):
            restore_slo(state, written.slo)
        restore_capacity(state, params, written.capacity, now)
        restore_headroom(state, written.headroom, None if written.model is None else written.model.digest)
        return restore(state, params, written.stabilization, now)

    def _pending(self, policy: Policy, params: Params) -> tuple[tuple[float, float], tuple[int, int]]:
        """Return the seconds since each pool's oldest replica that is not ready was asked for, and the number of those
        for which it is too long."""
        seconds, stuck = [0.0, 0.0], [0, 0]
        for pool, key in policy.facts.targets:
            i = POOLS.index(pool)
            seconds[i] = self._cache.pending_seconds(key)
            stuck[i] = self._cache.stuck_replicas(key, float(params.pending_seconds[0, i]))
        return (seconds[0], seconds[1]), (stuck[0], stuck[1])
