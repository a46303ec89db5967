"""One service of a cluster, sensed and scaled by the operator's own parts."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from functools import partial

import numpy as np

from rlscaler_core.api import GROUP, PLURAL, VERSION
from rlscaler_core.decision.action import LOGITS
from rlscaler_core.decision.decide import NO_ACTION
from rlscaler_core.decision.guards import STAGES
from rlscaler_core.decision.tables import initial_state
from rlscaler_core.decision.types import POOLS, Decision, Params, Samples
from rlscaler_live.environment.config import EnvironmentConfig
from rlscaler_live.environment.counters import CounterReader, Totals, counters_query
from rlscaler_live.environment.exceptions import LiveEnvironmentError
from rlscaler_operator.actuation.apply import Actuator, Applied
from rlscaler_operator.actuation.drain import Need
from rlscaler_operator.actuation.restore import restore
from rlscaler_operator.actuation.weights import format_weights
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.kube import Kube, listed, load_configuration, object_path
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, MetricsError, OperatorError
from rlscaler_operator.loop.learn import learned
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.labels import Labels
from rlscaler_operator.sensing.measure import measure, samples_of, samples_row
from rlscaler_operator.sensing.prometheus import Prometheus
from rlscaler_operator.sensing.queries import batch, load_seconds, windows
from rlscaler_operator.state.ownership import NOT_ACTING, find_conflict
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry

GATEWAY = "gateway.networking.k8s.io/v1"
LEASE_POLL_SECONDS = 0.2
SERIES_POLL_SECONDS = 0.2
DISCOVERY_SECONDS = 10.0
"""Prometheus hands new targets to its scrapers at most every 5 s."""


class LiveService:
    """Reads the cluster afresh at every tick, so that nothing has to be watched between two steps.

    The RLScalingPolicy that the operator's parts want exists here only; a Lease keeps two environments off one service.
    Every method raises LiveEnvironmentError.
    """

    def __init__(self, config: EnvironmentConfig, kube: Kube) -> None:
        self.config, self._kube = config, kube
        self._settings = config.settings()
        self._cache, self._others = WatchCache(), Registry()
        self._policy: Policy = Registry(
            partial(load_seconds, window=windows(self._settings)[0]), self._settings.window_seconds
        ).put(config.policy())
        if self._policy.observed.parsed is None:
            raise LiveEnvironmentError(f"environment: {self._policy.observed.invalid}")
        self._lease = Shards(kube, self._settings)
        self._holding: asyncio.Task[None] | None = None
        self._actuator = Actuator(
            kube, self._lease, ConcurrencyLimiter(self._settings.write_concurrency), self._cache, self._settings
        )
        self._prometheus = Prometheus(Access(config.prometheus_url), self._settings.prometheus_timeout_seconds)
        there = self._settings.labels_of(config.prometheus_url)
        self._labels = replace(Labels.of(self._settings), labels=tuple(there.items()))
        self._counter_reader = CounterReader(self._policy.subject)
        self._counted_at = 0.0
        self._need = Need.unknown()
        self._epoch = time.time() - time.monotonic()

    @classmethod
    async def connect(cls, config: EnvironmentConfig) -> LiveService:
        """Read the service, make sure that nothing else scales it, and keep other environments off from now on."""
        try:
            service = cls(config, Kube(await load_configuration(config.settings())))
        except OperatorError as error:
            raise _unusable(error) from error
        try:
            await service._open()
        except BaseException:
            await service.close()
            raise
        return service

    async def _open(self) -> None:
        await self.look()
        await self.require_alone()
        policy = self._policy
        policy.ownership.originals = self._actuator.picture(policy)
        policy.outbox.wrote_originals(policy.ownership.originals.to_dict())  # there is no object to record them on
        self._holding = asyncio.create_task(self._lease.run(), name="lease")
        # The Lease of an environment that was killed is free after `lease_seconds`; 5 s more for the requests.
        deadline = time.monotonic() + self._settings.lease_seconds + 5
        while not self._lease.held:
            if time.monotonic() > deadline:
                raise LiveEnvironmentError(
                    f"the Lease {self._settings.lease_namespace}/{self._settings.lease_name} is held: another "
                    "environment scales this service; end it first"
                )
            await asyncio.sleep(LEASE_POLL_SECONDS)

    @property
    def params(self) -> Params:
        return self._policy.params()

    def replicas(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """spec.replicas and ready replicas as last read; 0 for a pool that is not there."""
        targets = self._policy.deployments_in(self._cache)
        present = [targets.get(pool) for pool in POOLS]
        wanted, ready = ([getattr(d, name) if d else 0 for d in present] for name in ("replicas", "ready"))
        return (wanted[0], wanted[1]), (ready[0], ready[1])

    async def look(self) -> None:
        """Read Deployments, route and, where a cold start is to be learned, pods."""
        namespace = self.config.namespace
        policy = self._policy
        try:
            for pool, name in zip(POOLS, policy.deployments, strict=True):
                if name is not None:
                    self._cache.put_deployment(await self._get("apps/v1", "deployments", name, f"{pool}.deployment"))
            if self.config.http_route:
                self._cache.put_route(await self._get(GATEWAY, "httproutes", self.config.http_route, "http_route"))
            if any(pool.cold_start_seconds is None for pool in self.config.pools.values()):
                async for pod in listed(self._kube, (namespace,), "v1", "pods"):
                    self._cache.put_pod(pod)
        except OperatorError as error:
            raise _unusable(error) from error
        policy.decision.learn(learned(policy, self._cache))

    async def _get(self, api_version: str, plural: str, name: str, field: str) -> dict[str, object]:
        namespace = self.config.namespace
        try:
            return await self._kube.get(object_path(api_version, plural, namespace, name))
        except KubeError as error:
            if error.status != 404:
                raise
            raise LiveEnvironmentError(
                f"environment.{field}: there is no {name} in namespace {namespace}; create it or correct the name"
            ) from error

    async def require_alone(self) -> None:
        """Raise where an autoscaler or a policy in mode Auto scales the same Deployments."""
        namespaces = (self.config.namespace,)
        cache, self._others = WatchCache(), Registry()
        try:
            async for body in listed(self._kube, namespaces, "autoscaling/v2", "horizontalpodautoscalers"):
                cache.autoscalers.put("HorizontalPodAutoscaler", body)
            async for body in listed(self._kube, namespaces, "keda.sh/v1alpha1", "scaledobjects", optional=True):
                cache.autoscalers.put("ScaledObject", body)
            async for body in listed(self._kube, namespaces, f"{GROUP}/{VERSION}", PLURAL, optional=True):
                self._others.put(body)
        except OperatorError as error:
            raise _unusable(error) from error
        facts = self._policy.facts
        claim = facts.claim._replace(created=NOT_ACTING, name="~environment")
        conflict = find_conflict(claim, self._others.claims(key for _, key in facts.targets), cache)
        if conflict is not None:
            raise LiveEnvironmentError(
                f"{conflict.reason}: {conflict.message.partition(':')[0]}; an environment needs the service to itself: "
                "delete the autoscaler, or set the policy's mode to Off, for as long as it runs"
            )

    async def sense(self) -> Samples:
        """One sensing tick, as the operator's; signals that Prometheus does not give are NaN with their age."""
        await self.look()
        queries = batch([self._policy.subject], *windows(self._settings), self._labels)
        answers = await self._prometheus.ask(queries)
        wanted, ready = self.replicas()
        readings = measure(answers, self._policy.subject, ready)
        samples = samples_of([samples_row(readings, 0.0, self._epoch + time.monotonic(), wanted, ready, {})])
        self._need = Need.of(self.params, initial_state(1, 1, forecaster=False), samples)
        return samples

    async def apply(self, decision: Decision) -> Applied:
        """Write traffic weights and replicas as the operator does; after a failed write the next tick decides anew."""
        # Without a route nothing can write weights: they count as written, as the state has to follow them.
        if self.config.http_route is None:
            weights = decision.weights[0]
            self._policy.observed.wrote_weights(format_weights((int(weights[0]), int(weights[1]))))
        applied = await self._actuator.apply(self._policy, decision, self._need)
        problem = applied.weights_problem
        if problem is not None:
            raise LiveEnvironmentError(f"environment.http_route: {problem.message}")
        failed = [write for write in applied.writes.values() if write.outcome in ("Failed", "LeaseLost")]
        if failed:
            raise LiveEnvironmentError(f"the replicas were not written: {failed[0].message}")
        return applied

    async def begin_counting(self) -> None:
        """Count from now on; a service that has just come is waited for until it must have been scraped."""
        # Prometheus finds new pods within DISCOVERY_SECONDS, and scrapes them within an interval after that.
        deadline = time.monotonic() + DISCOVERY_SECONDS + 2 * self.config.scrape_interval_seconds
        while True:
            counters = await self._counters(1.0)
            missing = self._counter_reader.missing(counters)
            if not missing or time.monotonic() > deadline:
                break
            await asyncio.sleep(SERIES_POLL_SECONDS)
        self._counter_reader.begin(counters)
        self._counted_at = time.monotonic()

    def restart_clock(self) -> None:
        """Replica-seconds count from now on; the counters since `begin_counting`."""
        self._counted_at = time.monotonic()

    async def counted(self) -> Totals:
        """Return the growth of the counters since the last call."""
        now = time.monotonic()
        seconds = now - self._counted_at
        spent = self._counter_reader.read(await self._counters(seconds), seconds)
        self._counted_at = now
        return spent

    async def _counters(self, seconds: float) -> list[dict[str, object]]:
        try:
            return await self._prometheus.instant(counters_query(self._policy.subject, seconds, self._labels))
        except MetricsError as error:
            raise LiveEnvironmentError(
                f"environment.prometheus_url: {self.config.prometheus_url}: {error}; start it or correct the address"
            ) from error

    async def put_back(self) -> None:
        """The replicas and weights that were found."""
        policy = self._policy
        if policy.ownership.originals is None:
            return
        await self.look()
        replicas = {pool: n for pool in POOLS if (n := getattr(policy.ownership.originals.replicas, pool)) is not None}
        lease = self._lease.of(policy.key)
        try:
            await restore(self._kube, lease, self._actuator.weight_writer, self._cache, policy, replicas, None)
        except OperatorError as error:
            raise _unusable(error) from error

    async def close(self) -> None:
        """Hand the lease back and close the connections; the replicas stay as they are."""
        if self._holding is not None:
            self._holding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._holding
        await self._prometheus.close()
        await self._kube.close()


def plain_decision(
    base: tuple[int, int], desired: tuple[int, int], placement: int, weights: tuple[int, int]
) -> Decision:
    """Return a decision without guards, of a contender: replicas and weights, and no change by a guard."""
    row = np.array([desired], np.int32)
    return Decision(
        action=NO_ACTION[None],
        probabilities=np.full((1, LOGITS), np.nan, np.float32),
        base=np.array([base], np.int32),
        trail=np.repeat(row[:, None], len(STAGES), axis=1),
        desired=row,
        placement=np.array([placement], np.int32),
        weights=np.array([weights], np.int32),
        flags=np.zeros(1, np.int32),
    )


def _unusable(error: OperatorError) -> LiveEnvironmentError:
    if isinstance(error, LiveEnvironmentError):
        return error
    return LiveEnvironmentError(f"the cluster cannot be used: {error}")
