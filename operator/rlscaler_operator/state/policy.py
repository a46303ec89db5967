"""What the operator keeps about each policy between two ticks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlscaler_core.api import Condition, RLScalingPolicy, Spec, to_params
from rlscaler_core.api.promotion import EvidenceDay, PromotionStatus
from rlscaler_core.api.status import DecisionStatus, LastDecision, Learned, ObservationStatus, Originals
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.types import POOLS, Params, State
from rlscaler_operator.cluster.cache import Deployment, Key, WatchCache
from rlscaler_operator.cluster.events import Event, Reference
from rlscaler_operator.exceptions import ModelUnavailableError
from rlscaler_operator.sensing.capacity import Capacity
from rlscaler_operator.sensing.measure import Readings, nothing_measured
from rlscaler_operator.sensing.queries import Subject
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.state.ownership import Claim, ForeignWrites
from rlscaler_operator.state.schedule import Breaker, Schedule


class Facts(NamedTuple):
    """What follows from a spec alone, and is asked for several times a tick."""

    deployments: tuple[str | None, str | None]
    targets: tuple[tuple[str, Key], ...]
    """(pool, (namespace, Deployment)) of the pools that are there."""
    subject: Subject
    learns: bool
    """Does the spec leave anything to be learned?"""
    claim: Claim
    backends: tuple[Key, tuple[str, str]] | None
    """((namespace, HTTPRoute), (GPU Service, CPU Service)); None without a route or with one target only."""


@dataclass(slots=True)
class Unsaid:
    """A status that is to be written, and Events that are to be posted before it."""

    status: dict[str, Any]
    events: list[Event]


@dataclass(slots=True)
class Policy:
    """One RLScalingPolicy as it runs."""

    key: Key
    uid: str
    created: str
    generation: int
    annotations: dict[str, str]
    finalizers: list[str]
    deleting: bool
    parsed: RLScalingPolicy | None
    invalid: str
    """Why the spec cannot be used; empty = it can."""
    status: dict[str, Any]
    """As last written."""
    conditions: list[Condition]
    history: list[DecisionStatus]
    last: LastDecision | None
    originals: Originals | None
    latest: Mapping[str, Any]
    """The object as last seen, without managedFields: what another operator wrote into it counts on taking over."""
    schedule: Schedule | None = None
    state: State | None = None
    actor: ActorLike | None = None
    actor_error: ModelUnavailableError | None = None
    readings: Readings = field(default_factory=nothing_measured)
    read_at: float = 0.0
    """Monotonic time of the readings."""
    late_asked_at: float | None = None
    """Monotonic time when its late requests were last asked for."""
    late_carried: float = 0.0
    """Requests that were answered in time and had arrived in an earlier window; <= 0."""
    foreign: dict[str, ForeignWrites] = field(default_factory=dict)
    """By Deployment."""
    fallback_flags: int = 0
    """Flags of the last action."""
    outside: str = ""
    """Why the last action fell outside the actor's envelope."""
    desired: dict[str, int] = field(default_factory=dict)
    """Replicas by pool as last decided upon."""
    observation: ObservationStatus | None = None
    latency: Reading | None = None
    """The percentile that is displayed."""
    capacity: dict[str, Capacity] = field(default_factory=dict)
    """By pool: what is being learned where the spec leaves it open."""
    learned: Learned | None = None
    """What is used where the spec leaves something open."""
    promotion: PromotionStatus | None = None
    """Whether it may act, and why."""
    today: EvidenceDay | None = None
    """Today's comparison as of the last action."""
    promotion_of: tuple[int, ActorLike | None] | None = None
    """Generation and actor that this was found for."""
    busy: int = 0
    """Tasks under way for it."""
    holder_asked_at: float = float("-inf")
    """Monotonic time of the last question whether what holds the targets still exists."""
    written_at: float = float("-inf")
    """Monotonic time of the last status write."""
    reported_at: float = float("-inf")
    """Monotonic time of the last report."""
    settled: tuple[object, ...] | None = None
    """What the last report was made from, where everything it asked for is in force."""
    unsaid: Unsaid | None = None
    """What its last reports have still to write."""
    saying: bool = False
    """Is something of it being written?"""
    breaker: Breaker = field(default_factory=Breaker)
    _params: tuple[object, Params] | None = None
    _facts: tuple[RLScalingPolicy | None, Facts] | None = None

    @property
    def spec(self) -> Spec:
        assert self.parsed is not None
        return self.parsed.spec

    @property
    def reference(self) -> Reference:
        return Reference(*self.key, self.uid)

    @property
    def facts(self) -> Facts:
        """Made again when the spec changes."""
        if self._facts is None or self._facts[0] is not self.parsed:
            assert self.parsed is not None
            self._facts = self.parsed, _facts(self, self.parsed)
        return self._facts[1]

    @property
    def deployments(self) -> tuple[str | None, str | None]:
        return self.facts.deployments

    @property
    def subject(self) -> Subject:
        return self.facts.subject

    @property
    def running(self) -> bool:
        """Is there anything to sense and decide?"""
        return self.parsed is not None and not self.deleting and self.spec.mode != "Off"

    @property
    def acts(self) -> bool:
        """Does it lay a claim to its Deployments?"""
        return self.running and self.spec.mode == "Auto"

    def found(self, cache: WatchCache) -> dict[str, Deployment | None]:
        """The Deployments by pool; None where one does not exist or is going."""
        found: dict[str, Deployment | None] = {}
        for pool, key in self.facts.targets:
            deployment = cache.deployments.get(key)
            found[pool] = None if deployment is None or deployment.deleting else deployment
        return found

    def params(self) -> Params:
        """One row, made again when the spec or what was learned changes."""
        version = (self.generation, self.learned)
        if self._params is None or self._params[0] != version:
            self._params = version, to_params(self.spec, self.learned)
        return self._params[1]


def _facts(policy: Policy, parsed: RLScalingPolicy) -> Facts:
    spec, namespace = parsed.spec, policy.key[0]
    gpu, cpu = spec.targets.gpu, spec.targets.cpu
    names = (gpu.deployment if gpu else None, cpu.deployment if cpu else None)
    targets = [target for target in (gpu, cpu) if target is not None]
    unmeasured = any(target.requests_per_second is None for target in targets)
    subject = Subject(
        namespace, parsed.service, names, spec.slo.percentile, tuple(sorted(spec.metrics.queries.items())), unmeasured
    )
    there = tuple((pool, (namespace, name)) for pool, name in zip(POOLS, names, strict=True) if name is not None)
    learned = unmeasured or any(target.cold_start_seconds is None for target in targets)
    claim = Claim(policy.created, *policy.key, tuple(name for name in names if name))
    route, services = spec.placement.http_route, (spec.backend("gpu"), spec.backend("cpu"))
    backends = None
    if route is not None and services[0] is not None and services[1] is not None:
        backends = (namespace, route.name), (services[0], services[1])
    return Facts(names, there, subject, learned, claim, backends)
