"""Traffic weights: on the backends of an HTTPRoute, or as an annotation where there is no route.

A pool keeps the replicas that may still get traffic by weights that were replaced a moment ago.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rlscaler_operator.actuation.backends import (
    AmbiguousBackendError,
    Split,
    Weights,
    acknowledged,
    current_weights,
    find_splits,
    route_patch,
    same_rules,
    shares_of,
)
from rlscaler_operator.actuation.drain import Need, fewest
from rlscaler_operator.actuation.scale import TEST_FAILED
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter, Priority
from rlscaler_operator.cluster.kube import CONFLICTS, FIELD_MANAGER, Kube, object_path, policy_path
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.exceptions import KubeError, LeaseLostError
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.findings import Problem
from rlscaler_operator.state.observed import WEIGHTS_ANNOTATION
from rlscaler_operator.state.ownership import route_remedy, who
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.traffic import UNKNOWN

API_VERSION = "gateway.networking.k8s.io/v1"


class WeightsResult(NamedTuple):
    """Result of writing the weights."""

    problem: Problem | None = None
    """Why they are not in force and will not be by themselves."""
    went_through: bool = True
    """False where a write was tried and failed: no pool should shrink before the next tick."""
    changed: bool = False
    in_force: bool = True
    """False where the route does not have the wanted weights."""


def read_splits(cache: WatchCache, key: Key, backends: tuple[str, str]) -> tuple[list[Split], Problem | None]:
    """Return the rules of a route that name a backend, and why its weights cannot be set; None where they can."""
    namespace, name = key
    route = cache.routes.get(key)
    if route is None:
        text = f"HTTPRoute {name} does not exist: create it, or remove placement.httpRoute"
        return [], Problem("HTTPRouteMissing", text)
    try:
        splits = find_splits(route, namespace, backends)
    except AmbiguousBackendError as error:
        return [], Problem("BackendAmbiguous", f"HTTPRoute {name}: {error}")
    if not any(split.both for split in splits):
        text = f"no rule of HTTPRoute {name} has both backends {backends[0]} and {backends[1]}: correct either"
        return splits, Problem("BackendMissing", text)
    return splits, None


def format_weights(weights: Weights) -> str:
    """`gpu=800,cpu=200`."""
    return f"gpu={weights[0]},cpu={weights[1]}"


class WeightWriter:
    """Writes weights, and knows the replicas that their traffic still needs. Its memory is in `Policy.traffic`."""

    def __init__(
        self, kube: Kube, shards: Shards, limiter: ConcurrencyLimiter, cache: WatchCache, settings: Settings
    ) -> None:
        self._kube, self._shards, self._limiter, self._cache = kube, shards, limiter, cache
        self._drain = settings.drain_seconds

    def original(self, policy: Policy) -> Weights | None:
        """Return the weights as they are now; None where no rule of a route splits between the backends."""
        backends = policy.facts.backends
        return current_weights(read_splits(self._cache, *backends)[0]) if backends is not None else None

    def moves(self, policy: Policy, weights: Weights) -> bool:
        """Return True where a route does not have the weights and they can be set."""
        backends = policy.facts.backends
        if backends is None:
            return False
        splits, problem = read_splits(self._cache, *backends)
        return problem is None and bool(route_patch(self._cache.routes[backends[0]], splits, weights))

    async def write(self, policy: Policy, weights: Weights) -> tuple[WeightsResult, list[Problem]]:
        """Set or publish the weights; return the result, and warnings that are worth an Event."""
        backends = policy.facts.backends
        if backends is None:
            return await self._publish(policy, weights), []
        warnings = self._look(policy)
        foreign = policy.traffic.foreign
        if not self.moves(policy, weights):
            written = await self._patch_route(policy, weights)
        elif foreign.backoff.waits(self._cache.clock()):
            text = (
                f"{who(foreign.manager)} keeps setting the weights of HTTPRoute {backends[0][1]}, which are left alone "
                f"for a while that grows: {route_remedy(foreign.manager)}"
            )
            written = WeightsResult(Problem("HTTPRouteForeignWriter", text), in_force=False)
        else:
            async with self._limiter.slot(Priority.SCALE):
                written = await self._patch_route(policy, weights)
        self._look(policy)
        if written.problem is None and policy.traffic.shift.overdue(self._acknowledged(policy), self._cache.clock()):
            text = (
                f"a Gateway of HTTPRoute {backends[0][1]} has not accepted its newest weights: no pool shrinks below "
                "what the old ones send to it; see the route's status.parents"
            )
            written = written._replace(problem=Problem("HTTPRouteNotAccepted", text))
        return written, warnings

    def fewest(self, policy: Policy, need: Need, moved: bool, running: tuple[int, int]) -> tuple[int, int]:
        """Return the replicas of each pool that must stay for the traffic that it may still be sent."""
        if policy.facts.backends is None:
            return 0, 0
        shift = policy.traffic.shift
        return fewest(need, shift.in_force(), shift.shares or UNKNOWN, moved, running)

    def still_sent_to(self, policy: Policy, pools: Iterable[int]) -> Problem | None:
        """Return why a pool cannot go to 0 although its weights are 0: a rule sends to it and not to the other one."""
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

    async def _patch_route(self, policy: Policy, weights: Weights) -> WeightsResult:
        """Set the weights on every rule that splits between the two backends; never repeated after a conflict."""
        assert policy.facts.backends is not None
        (key, backends), cache = policy.facts.backends, self._cache
        namespace, name = key
        splits, problem = read_splits(cache, key, backends)
        if problem is not None:
            return WeightsResult(problem, in_force=False)
        coarse = next((split for split in splits if split.coarse), None)
        if coarse is not None:
            problem = Problem(
                "WeightsTooCoarse",
                f"rule {coarse.rule} of HTTPRoute {name} gives {backends[0]} and {backends[1]} a small weight beside "
                "other backends, whose share stays: multiply all weights of the rule, so that the two have 100 or more",
            )
        patch = route_patch(cache.routes[key], splits, weights)
        if not patch:
            return WeightsResult(problem)
        path = object_path(API_VERSION, "httproutes", namespace, name)
        try:
            cache.put_route(await self._shards.of(policy.key).patch(path, patch))
            splits, gone = read_splits(cache, key, backends)
            if gone is None and route_patch(cache.routes[key], splits, weights):
                text = "a mutating webhook or policy changes the weights on their way: exempt the field manager"
                gone = Problem("HTTPRouteNotWritten", f"HTTPRoute {name}: {text} {FIELD_MANAGER} from it")
            if gone is not None:
                return WeightsResult(gone, in_force=False)
            return WeightsResult(problem, changed=True)
        except LeaseLostError as error:
            return WeightsResult(Problem(error.reason, str(error)), went_through=False, in_force=False)
        except KubeError as error:
            return WeightsResult(await self._failed(key, path, error), went_through=False, in_force=False)

    async def _failed(self, key: Key, path: str, error: KubeError) -> Problem | None:
        """Read the route again after a failed write. A conflict is no problem: the next tick writes anew."""
        cache = self._cache
        before, refused = cache.routes.get(key), error.status not in CONFLICTS
        try:
            read = await self._kube.get(path)
            # Where the rules are still those of the `test`, it held, and an admission policy refused the write.
            refused |= error.status == TEST_FAILED and before is not None and same_rules(read, before)
            cache.put_route(read)
        except KubeError as second:
            if second.status == 404:
                cache.routes.pop(key, None)
        return Problem("HTTPRouteNotWritten", f"HTTPRoute {key[1]}: {error}") if refused else None

    def _look(self, policy: Policy) -> list[Problem]:
        """Note the route as the cache has it; return a warning where another writer has just set weights."""
        assert policy.facts.backends is not None
        key, backends = policy.facts.backends
        splits, problem = read_splits(self._cache, key, backends)
        route, now, traffic = self._cache.routes.get(key), self._cache.clock(), policy.traffic
        metadata = route["metadata"] if route is not None else {}
        traffic.shift.look(shares_of(splits), metadata.get("generation", 0), now)
        # Proxies follow a route at the earliest when it is acknowledged and the drain time has passed.
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

    async def _publish(self, policy: Policy, weights: Weights) -> WeightsResult:
        published = policy.observed.annotations.get(WEIGHTS_ANNOTATION) == format_weights(weights)
        if policy.spec.placement.http_route is None and all(policy.deployments) and not published:
            try:
                async with self._limiter.slot(Priority.REPORT):
                    body = {"metadata": {"annotations": {WEIGHTS_ANNOTATION: format_weights(weights)}}}
                    await self._shards.of(policy.key).patch(policy_path(policy.key), body)
            except (KubeError, LeaseLostError) as error:
                problem = Problem("PolicyNotWritten", f"annotation {WEIGHTS_ANNOTATION}: {error}")
                return WeightsResult(problem, went_through=False)
            policy.observed.wrote_weights(format_weights(weights))
        return WeightsResult()
