"""Puts one decision's traffic weights in force, and knows how much traffic a pool may still be sent."""

from __future__ import annotations

from collections.abc import Iterable

from rlscaler_operator.actuation.backends import (
    Weights,
    acknowledged,
    current_weights,
    route_patch,
    shares_of,
)
from rlscaler_operator.actuation.drain import Need, fewest
from rlscaler_operator.actuation.routes import Placed, annotate, format_weights, read_splits, write_weights
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.observed import WEIGHTS_ANNOTATION
from rlscaler_operator.state.ownership import who
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.route_remedies import route_remedy
from rlscaler_operator.state.traffic import UNKNOWN


class Placer:
    """Writes weights. What it remembers is in `Policy.traffic`."""

    def __init__(
        self, kube: Kube, shards: Shards, limiter: ConcurrencyLimiter, cache: WatchCache, settings: Settings
    ) -> None:
        self._kube, self._shards, self._limiter, self._cache = kube, shards, limiter, cache
        self._timeout, self._drain = settings.write_timeout_seconds, settings.drain_seconds

    def original(self, policy: Policy) -> Weights | None:
        """The weights as they are now; None where no rule of a route splits between the backends."""
        backends = policy.facts.backends
        return current_weights(read_splits(self._cache, *backends)[0]) if backends is not None else None

    def moves(self, policy: Policy, weights: Weights) -> bool:
        """Return True where a route does not have the weights and they can be set."""
        backends = policy.facts.backends
        if backends is None:
            return False
        splits, problem = read_splits(self._cache, *backends)
        return problem is None and bool(route_patch(self._cache.routes[backends[0]], splits, weights))

    async def place(self, policy: Policy, weights: Weights) -> tuple[Placed, list[Problem]]:
        """Set or publish the weights; also what is worth an Event."""
        backends = policy.facts.backends
        if backends is None:
            return await self._publish(policy, weights), []
        warnings = self._look(policy)
        foreign = policy.traffic.foreign
        if not self.moves(policy, weights):
            placed = await self._write(policy, weights)
        elif foreign.backoff.waits(self._cache.clock()):
            text = (
                f"{who(foreign.manager)} keeps setting the weights of HTTPRoute {backends[0][1]}, which are left alone "
                f"for a while that grows: {route_remedy(foreign.manager)}"
            )
            placed = Placed(Problem("HTTPRouteForeignWriter", text), in_force=False)
        else:
            async with self._limiter.slot(Priority.SCALE):
                placed = await self._write(policy, weights)
        self._look(policy)
        if placed.problem is None and self._overdue(policy):
            text = (
                f"a Gateway of HTTPRoute {backends[0][1]} has not accepted its newest weights: no pool shrinks below "
                "what the old ones send to it; see the route's status.parents"
            )
            placed = placed._replace(problem=Problem("HTTPRouteNotAccepted", text))
        return placed, warnings

    def fewest(self, policy: Policy, need: Need, moved: bool, running: tuple[int, int]) -> tuple[int, int]:
        """The replicas of each pool that must stay for the traffic that it may still be sent."""
        if policy.facts.backends is None:
            return 0, 0
        shift = policy.traffic.shift
        return fewest(need, shift.in_force(), shift.shares or UNKNOWN, moved, running)

    def still_sent_to(self, policy: Policy, pools: Iterable[int]) -> Problem | None:
        """Why a pool cannot go to 0 although its weights are 0: a rule sends to it and not to the other one."""
        if policy.facts.backends is None:
            return None
        (key, backends), shift = policy.facts.backends, policy.traffic.shift
        splits, problem = read_splits(self._cache, key, backends)
        for pool in pools if problem is None and not shift.replaced else ():
            rule = next((s.rule for s in splits if not s.both and s.refs[pool] is not None and s.weights[pool]), None)
            if rule is not None:
                text = (
                    f"rule {rule} of HTTPRoute {key[1]} sends to Service {backends[pool]} alone, which keeps one "
                    "replica: name both backends in it, give its backend weight 0, or raise minReplicas to 1"
                )
                return Problem("BackendInOtherRule", text)
        return None

    async def _write(self, policy: Policy, weights: Weights) -> Placed:
        assert policy.facts.backends is not None
        lease = self._shards.of(policy.key)
        return await write_weights(self._kube, lease, self._cache, *policy.facts.backends, weights, self._timeout)

    def _look(self, policy: Policy) -> list[Problem]:
        """Take note of the route as the cache has it; a warning where another writer has just set weights."""
        assert policy.facts.backends is not None
        key, backends = policy.facts.backends
        splits, problem = read_splits(self._cache, key, backends)
        route, now, traffic = self._cache.routes.get(key), self._cache.clock(), policy.traffic
        metadata = route["metadata"] if route is not None else {}
        traffic.shift.look(shares_of(splits), metadata.get("generation", 0), now)
        traffic.shift.settle(self._acknowledged(policy), max(self._drain, float(policy.spec.sense_seconds)), now)
        if route is None or problem is not None:
            return []
        known = tuple(sorted(split.weights for split in splits if split.both))
        if not traffic.foreign.look(known, route["manager"], float(policy.spec.interval_seconds), now):
            return []
        manager = traffic.foreign.manager
        text = f"{who(manager)} set the weights of HTTPRoute {key[1]}: the decided ones are set again"
        return [Problem("WeightsReplaced", f"{text}; so that it does not happen again: {route_remedy(manager)}")]

    def _acknowledged(self, policy: Policy) -> float:
        assert policy.facts.backends is not None
        key, _ = policy.facts.backends
        return acknowledged(self._cache.routes.get(key, {}), key[0])

    def _overdue(self, policy: Policy) -> bool:
        return policy.traffic.shift.overdue(self._acknowledged(policy), self._cache.clock())

    async def _publish(self, policy: Policy, weights: Weights) -> Placed:
        published = policy.observed.annotations.get(WEIGHTS_ANNOTATION) == format_weights(weights)
        if policy.spec.placement.http_route is None and all(policy.deployments) and not published:
            try:
                async with self._limiter.slot(Priority.REPORT):
                    await annotate(self._kube, self._shards.of(policy.key), policy.key, weights, self._timeout)
            except (KubeError, LeaseLostError) as error:
                problem = Problem("PolicyNotWritten", f"annotation {WEIGHTS_ANNOTATION}: {error}")
                return Placed(problem, went_through=False)
            policy.observed.wrote_weights(format_weights(weights))
        return Placed()
