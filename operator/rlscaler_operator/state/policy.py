"""The state of a policy between two ticks: parts, each of which one package writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rlscaler_core.api import Spec, to_params
from rlscaler_core.decision.types import Params
from rlscaler_operator.cluster.bodies import Deployment, Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.events import Reference
from rlscaler_operator.exceptions import SpecInvalidError
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.state.decision import DecisionState, PromotionState
from rlscaler_operator.state.observed import ObservedObject, SpecFacts
from rlscaler_operator.state.operators import Standing
from rlscaler_operator.state.ownership import Ownership
from rlscaler_operator.state.pod_sizes import Failures, NewPods
from rlscaler_operator.state.report import LateRequests, Outbox, ReportState
from rlscaler_operator.state.schedule import Timing
from rlscaler_operator.state.traffic import TrafficState


@dataclass(slots=True, eq=False)
class Policy:
    """One RLScalingPolicy as it runs. Its parts know who writes them; everything else reads them."""

    key: Key
    uid: str
    observed: ObservedObject
    load_seconds: Callable[[Subject], float] = lambda subject: 0.0
    """Returns the seconds over which the load is measured."""
    usage_seconds: float = 0.0
    """Seconds over which utilization and latency are measured."""
    decision: DecisionState = field(default_factory=DecisionState)
    promotion: PromotionState = field(default_factory=PromotionState)
    ownership: Ownership = field(default_factory=Ownership)
    traffic: TrafficState = field(default_factory=TrafficState)
    report: ReportState = field(default_factory=ReportState)
    outbox: Outbox = field(default_factory=Outbox)
    timing: Timing = field(default_factory=Timing)
    standing: Standing = field(default_factory=Standing)
    """State towards operators with another Lease; `loop/operators.py` writes it."""
    late: LateRequests = field(default_factory=LateRequests)
    resizes: dict[str, Failures] = field(default_factory=dict)
    """The failures of resizing its pods, by pool; `actuation/pod_sizes.py` writes it."""
    new_pods: NewPods = field(default_factory=NewPods)
    """State of writing the size of new pods; `actuation/pod_sizes.py` writes it."""
    _params: tuple[object, Params] | None = None

    @property
    def reference(self) -> Reference:
        return Reference(*self.key, self.uid)

    @property
    def spec(self) -> Spec:
        """Raises SpecInvalidError, also during a tick: the policy may be edited at any time."""
        if self.observed.parsed is None:
            raise SpecInvalidError(self.observed.invalid)
        return self.observed.parsed.spec

    @property
    def facts(self) -> SpecFacts:
        """The facts that follow from the spec alone. Raises SpecInvalidError."""
        if self.observed.facts is None:
            raise SpecInvalidError(self.observed.invalid)
        return self.observed.facts

    @property
    def deployments(self) -> tuple[str | None, str | None]:
        return self.facts.deployments

    @property
    def subject(self) -> Subject:
        return self.facts.subject

    @property
    def running(self) -> bool:
        """Whether there is anything to sense and decide."""
        return self.observed.parsed is not None and not self.observed.deleting and self.spec.mode != "Off"

    @property
    def acts(self) -> bool:
        """Whether it lays a claim to its Deployments."""
        return self.running and self.spec.mode == "Auto"

    def deployments_in(self, cache: WatchCache) -> dict[str, Deployment | None]:
        """Return the Deployments by pool; None where one does not exist or is going."""
        deployments = {pool: cache.deployments.get(key) for pool, key in self.facts.targets}
        return {pool: None if d is None or d.deleting else d for pool, d in deployments.items()}

    def params(self) -> Params:
        """Return one row, built again when the spec, the learned values, the turned-off pools or the route change."""
        routed = self.traffic.follows
        version = (self.observed.generation, self.decision.learned, self.decision.off, routed)
        if self._params is None or self._params[0] != version:
            seconds = self.load_seconds(self.subject)
            self._params = (
                version,
                to_params(self.spec, self.decision.learned, self.decision.off, seconds, self.usage_seconds, routed),
            )
        return self._params[1]
