"""One episode on a live service: begin, act, let an interval pass, observe. In real time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.action import traffic_weights
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import starting_state
from rlscaler_core.decision.decide import Proposal, decide
from rlscaler_core.decision.observation import ObservationContract, observe, sense, stacked_input
from rlscaler_core.decision.rule import RuleSettings
from rlscaler_core.decision.spec import UNCHANGED, spec_of, with_spec
from rlscaler_core.decision.tables import known
from rlscaler_core.decision.types import (
    SIGNALS,
    Decision,
    Flag,
    Float32,
    Int,
    Observation,
    Params,
    Placement,
    Samples,
    State,
)
from rlscaler_live.environment.config import SENSE_SECONDS, EnvironmentConfig
from rlscaler_live.environment.counters import Counts, Totals, figures
from rlscaler_live.environment.exceptions import LiveEnvironmentError
from rlscaler_live.environment.load import Load, OwnTraffic
from rlscaler_live.environment.service import LiveService, plain_decision
from rlscaler_rl.baselines.contender import Contender

UNREACHABLE_SECONDS = 30.0
"""While a cluster or Prometheus does not answer for so long, ticks are lost; then the episode ends with the error."""

POLL_SECONDS = 1.0


Controller = Contender | ActorLike
"""Controller in place of an agent: an actor behind the guards once an interval, or a contender at every tick."""


def is_actor(controller: Controller) -> TypeGuard[ActorLike]:
    return hasattr(controller, "probabilities")


def is_contender(controller: Controller | None) -> TypeGuard[Contender]:
    return controller is not None and not hasattr(controller, "probabilities")


class Episode:
    """Begins anew with `begin`; `state` is the decision function's. Methods raise LiveEnvironmentError."""

    def __init__(
        self,
        service: LiveService,
        load: Load,
        config: EnvironmentConfig,
        contract: ObservationContract,
        rule: RuleSettings | None,
    ) -> None:
        self._service, self._load, self._config = service, load, config
        self._contract, self._rule = contract, rule
        self.counts, self.total, self.spent = Counts(), Totals(), Totals()
        self.samples: Samples
        self.observation: Observation
        self.state: State
        self.made: Decision | None = None
        self.timeline: list[dict[str, Any]] = []
        self._sensed: State
        self._spec = UNCHANGED
        self._began = 0.0
        self._intervals = 0
        self._failing_since: float | None = None

    @property
    def params(self) -> Params:
        """The service's spec, as the controller wants it."""
        return with_spec(self._service.params, self._spec)

    @property
    def elapsed(self) -> float:
        """Seconds since the load's first one."""
        return time.monotonic() - self._began

    @property
    def intervals(self) -> int:
        """Action intervals that have passed."""
        return self._intervals

    async def begin(self, pattern: str, seed: int, start: tuple[int, int], folder: Path | None) -> Float32:
        """End the load before, go to the replicas of `start`, start the load; the first stacked observation (10 k,)."""
        await self._load.stop()
        await self._service.look()
        await self._service.require_alone()
        # Pods start while the last load leaves the rate window; the other order would take both times.
        await self._first_replicas(start)
        await self._silence()
        self.counts, self.total, self.spent = Counts(), Totals(), Totals()
        self._intervals, self._failing_since, self.made, self._spec = 0, None, None, UNCHANGED
        self.timeline = []
        await self._service.begin_counting()
        started = await self._load.start(pattern, seed, self._config.episode_duration, folder)
        # The load reports its first second in Unix time; ticks are timed by a clock that is never set back.
        self._began = time.monotonic() - (time.time() - started)
        self._service.restart_clock()
        self.state = starting_state(self._contract.stack_size, start, time.time())
        self.state.weights = self._first_weights(start)
        return await self._observe()

    async def end(self) -> None:
        """Stop the load and count the answers of its last requests, which takes a scrape; billing has ended."""
        await self._load.stop()
        await asyncio.sleep(self._config.scrape_interval_seconds + POLL_SECONDS)
        last = await self._service.counted()
        # Requests that end after the last interval belong to the episode; its seconds and replicas do not go on.
        self.total = self.total.plus(replace(last, seconds=0.0, billed=np.zeros(2)))

    def take_over(self, controller: Controller) -> None:
        """An episode of `controller` begins: its settings of the spec, its own memory."""
        self._spec = spec_of(controller)
        interval = self._spec.interval_seconds
        if interval and interval != self._config.action_interval:
            raise LiveEnvironmentError(
                f"action_interval {self._config.action_interval}: the controller's settings say {interval}; make the "
                "environment with that interval"
            )
        if is_contender(controller):
            controller.reset(self.params)

    async def act(self, action: Int) -> Decision:
        """Take the action (1, 3) through the guards, upon the newest observation."""
        proposal = Proposal(self.observation, action, self._rule)
        decision, _, self.state = decide(self.params, self.state, self.samples, proposal)
        with self._losses():
            await self._write(decision)
        return decision

    async def ask(self, controller: Controller, rng: np.random.Generator) -> None:
        """Write the decision of `controller`: an actor's through the guards, a contender's within the bounds."""
        if is_actor(controller):
            decision, observation, self.state = decide(self.params, self._sensed, self.samples, controller)
            assert observation is not None
            self.observation = observation
            with self._losses():
                await self._write(decision)
        elif is_contender(controller):
            with self._losses():
                await self._place(controller, rng)

    async def _place(self, contender: Contender, rng: np.random.Generator) -> None:
        params, state = self.params, self.state
        # Contenders count seconds; the clock of a real tick is some milliseconds off.
        tick = time.time() - self.elapsed + SENSE_SECONDS * round(self.elapsed / SENSE_SECONDS)
        desired, placement = contender(params, state, replace(self.samples, time=np.round([tick])), rng)
        bounded = np.clip(desired, params.min_replicas, params.max_replicas)
        bounded = np.where(params.present, bounded, 0).astype(np.int32)
        chosen = np.asarray(placement, dtype=np.int32)
        staying = np.minimum(self.samples.ready_replicas, bounded)
        weights = traffic_weights(staying, params.requests_per_second, chosen, state.weights)
        base = self.samples.spec_replicas[0]
        # The next split starts from these: a pool without ready pods keeps its last weights.
        state.weights, state.placement = weights, chosen
        await self._write(plain_decision(_pair(base), _pair(bounded[0]), int(chosen[0]), _pair(weights[0])))

    async def pass_interval(
        self, controller: Controller | None = None, rng: np.random.Generator | None = None
    ) -> Float32:
        """Let an interval pass with its sensing ticks, from just after an action; the next observation (10 k,)."""
        due = self._intervals * self._config.action_interval
        # The tick at the begin of the interval was the observation that the action was chosen by.
        for second in range(due + SENSE_SECONDS, due + self._config.action_interval, SENSE_SECONDS):
            if self.elapsed > second + SENSE_SECONDS:
                continue  # a slow answer has eaten this tick
            await self._until(second)
            await self._tick(controller, rng)
        self._intervals += 1
        await self._until(self._intervals * self._config.action_interval)
        stacked, self.spent = await self._measured()
        self.total = self.total.plus(self.spent)
        return stacked

    async def _until(self, second: float) -> None:
        await asyncio.sleep(max(0.0, second - self.elapsed))

    async def _tick(self, controller: Controller | None, rng: np.random.Generator | None) -> None:
        with self._losses():
            await self._sense()
            if is_contender(controller) and rng is not None:
                await self._place(controller, rng)
            else:
                decision, _, self.state = decide(self.params, self.state, self.samples, kind="floor")
                await self._write(decision)
            self._failing_since = None

    @contextmanager
    def _losses(self) -> Iterator[None]:
        """A cluster that does not answer loses the tick; one that does not answer for long ends the episode."""
        try:
            yield
        except LiveEnvironmentError:
            self.counts.lost_ticks += 1
            self._failing_since = self._failing_since or time.monotonic()
            if time.monotonic() - self._failing_since > UNREACHABLE_SECONDS:
                raise

    async def _measured(self) -> tuple[Float32, Totals]:
        """Observation and meters at the end of an interval; tried again until the time for that is over."""
        since, spent = self._failing_since or time.monotonic(), Totals()
        while True:
            try:
                spent = spent.plus(await self._service.counted())
                stacked = await self._observe()
                self._failing_since = None
                return stacked, spent
            except LiveEnvironmentError:
                if time.monotonic() - since > UNREACHABLE_SECONDS:
                    raise
            await asyncio.sleep(POLL_SECONDS)

    async def _sense(self) -> None:
        self.samples = await self._service.sense()
        self.state = self._sensed = sense(self.params, self.state, self.samples)
        is_known = dict(zip(SIGNALS, known(self.params, self.samples)[0], strict=True))
        self.timeline.append(
            {
                "second": self.elapsed,
                "arrival_rate": float(self.samples.arrival_rate[0]) if is_known["arrival_rate"] else math.nan,
                "p95_ms": float(self.samples.p95_ms[0]) if is_known["p95_latency"] else math.nan,
                "spec_replicas": _pair(self.samples.spec_replicas[0]),
                "ready_replicas": _pair(self.samples.ready_replicas[0]),
                "weights": _pair(self.state.weights[0]),
            }
        )

    async def _observe(self) -> Float32:
        await self._sense()
        self.observation, self.state = observe(self.params, self._sensed, self.samples, self._contract)
        stacked: Float32 = stacked_input(self.state)[0]
        return stacked

    async def _write(self, decision: Decision) -> None:
        before = self._service.replicas()[0]
        await self._service.apply(decision)
        after = self._service.replicas()[0]
        self.counts.scale_ups += sum(now > then for now, then in zip(after, before, strict=True))
        self.counts.scale_downs += sum(now < then for now, then in zip(after, before, strict=True))
        if self.made is not None:
            self.counts.placement_changes += int(decision.placement[0] != self.made.placement[0])
        self.counts.floor_raises += bool(decision.flags[0] & Flag.FLOOR)
        self.made = decision

    async def _first_replicas(self, start: tuple[int, int]) -> None:
        config, weights = self._config, _pair(self._first_weights(start)[0])
        deadline = time.monotonic() + config.ready_timeout_seconds
        while True:
            base, ready = self._service.replicas()
            await self._service.apply(plain_decision(base, start, Placement.BALANCED, weights))
            if base == start == ready:
                return
            if time.monotonic() > deadline:
                raise LiveEnvironmentError(
                    f"after {config.ready_timeout_seconds:.0f} s the ready replicas (GPU, CPU) are {ready}, not "
                    f"{start}: look at the pods in namespace {config.namespace}, or raise ready_timeout_seconds"
                )
            await asyncio.sleep(POLL_SECONDS)
            await self._service.look()

    def _first_weights(self, start: tuple[int, int]) -> Int:
        """(1, 2) by the capacity of the first replicas."""
        rps, placement = self._service.params.requests_per_second, np.array([Placement.BALANCED], np.int32)
        return traffic_weights(np.array([start], np.int32), rps, placement, np.full((1, 2), 500, np.int32))

    async def _silence(self) -> None:
        """Wait until the load that we have ended has left the rate window; other traffic may go on."""
        if isinstance(self._load, OwnTraffic):
            return
        # A rate over a window is 0 one window after the last request at the latest; twice that bounds the wait.
        deadline = time.monotonic() + 2 * self._config.settings().window_seconds
        while time.monotonic() < deadline:
            samples = await self._service.sense()
            if not samples.arrival_rate[0] > 0:
                return
            await asyncio.sleep(POLL_SECONDS)

    def figures(self) -> dict[str, float]:
        """The episode so far, under the names of simulated results, without `j`."""
        return figures(self.total, self.counts, self._config, self._service.params.cost_per_hour[0])


def _pair(values: NDArray[Any]) -> tuple[int, int]:
    return int(values[0]), int(values[1])
