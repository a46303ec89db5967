"""The decision state of a policy from one tick to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlscaler_core.api.promotion import EvidenceDay, PromotionStatus
from rlscaler_core.api.spec import SLO
from rlscaler_core.api.status_memory import BudgetMembership, Learned
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import Outcome
from rlscaler_core.decision.types import POOLS, State
from rlscaler_core.decision.units import SignalName
from rlscaler_operator.exceptions import ModelUnavailableError
from rlscaler_operator.sensing.measure import Readings, nothing_measured
from rlscaler_operator.sensing.results import Reading
from rlscaler_operator.sensing.streams import Stream
from rlscaler_operator.state.error_budget import counted_by, forget_count
from rlscaler_operator.state.pod_sizes import Sizing


@dataclass(slots=True)
class DecisionState:
    """The last measurements, learned values and decision. The ticks in `loop` write it.

    Fields that a report depends on are written by the methods, which count changes in `revision`.
    """

    state: State | None = None
    """The decision function's memory, one row; None before the first decision."""
    counted_in: tuple[str, SignalName, int | None] | None = None
    """The unit of the remembered load with the weights of its tokens, the kind of latency, and the objective of a
    second one; None at first."""
    actor: ActorLike | None = None
    actor_error: ModelUnavailableError | None = None
    """The error of the model that the spec names."""
    readings: Readings = field(default_factory=nothing_measured)
    read_at: float = 0.0
    """Monotonic time of the readings."""
    stream: Stream | None = None
    """The last look at the brokers; None where the replicas are no consumers."""
    latency: Reading | None = None
    """The percentile that is displayed."""
    learned: Learned | None = None
    """The learned values in use where the spec leaves something open."""
    off: tuple[str, ...] = ()
    """Pools that are turned off, by 0 replicas that another writer set."""
    budgets: tuple[str, ...] = ()
    """RLScalingBudgets that select the policy."""
    budget: str = ""
    """The RLScalingBudget that acts on it; empty = none."""
    unguaranteed: bool = False
    """Whether it goes without the guarantee of its entry there."""
    membership: BudgetMembership | None = None
    """`status.budget`, the request for another owner of the policy's budget; None where there is no other owner."""
    action_flags: int = 0
    """Flags of the last action."""
    outside: str = ""
    """Why the last action fell outside the actor's envelope."""
    desired: dict[str, int] = field(default_factory=dict)
    """Replicas by pool as last decided upon."""
    sizing: Sizing | None = None
    """The recommended sizes of pods, as of the last action; None where the spec has no range."""
    revision: int = 0
    """Grows with every change that a report depends on."""
    _known: list[tuple[str, bool]] = field(default_factory=list)
    """Why each reading is unknown, and whether it is too old."""
    _shown: tuple[object, ...] = ()
    """Flags, placement and weights of the last decision."""

    def count_in(self, load: str, slo: SLO) -> bool:
        """Note the unit of the load, its weights and the latencies with an objective; return whether they changed.

        Another load or kind of latency begins anew: 20 requests/s have nothing to say about 20,000 tokens/s. Another
        objective of a second latency drops the counts of late requests alone.
        """
        before, now = self.counted_in, (load, *counted_by(slo))
        self.counted_in = now
        if before is None or before == now:
            return False
        self.state = forget_count(self.state) if self.state is not None and before[:2] == now[:2] else None
        return True

    def nothing_there(self) -> None:
        """Forget state and readings while a Deployment does not exist: deciding begins anew once it does."""
        self.state, self.readings = None, nothing_measured()

    def measured(self, readings: Readings, latency: Reading | None, now: float, max_age_seconds: float) -> None:
        """Note the readings of now; a report depends on which are known, not on their values."""
        self.readings, self.latency, self.read_at = readings, latency, now
        known = [(reading.reason, reading.age_seconds > max_age_seconds) for reading in readings.values()]
        self.revision += known != self._known
        self._known = known

    def consumes(self, stream: Stream | None) -> None:
        """Note the last look at the brokers; a report depends on its notes for the consumers' owner."""
        before = () if self.stream is None else self.stream.notes
        self.revision += before != (() if stream is None else stream.notes)
        self.stream = stream

    def learn(self, learned: Learned | None) -> None:
        self.revision += learned != self.learned
        self.learned = learned

    def size_pods(self, sizing: Sizing | None) -> None:
        """Note the recommended sizes; a report depends on the sizes, and not on the usage."""
        before = None if self.sizing is None else self.sizing.sizes
        self.revision += before != (None if sizing is None else sizing.sizes)
        self.sizing = sizing

    def turn_off(self, off: tuple[str, ...]) -> None:
        self.revision += off != self.off
        self.off = off

    def set_budgets(self, budgets: tuple[str, ...], budget: str) -> None:
        """Note the budgets that select the policy, and the one that acts on it."""
        self.revision += (budgets, budget) != (self.budgets, self.budget)
        self.budgets, self.budget = budgets, budget
        self.set_unguaranteed(self.unguaranteed and bool(budget))

    def set_unguaranteed(self, unguaranteed: bool) -> None:
        self.revision += unguaranteed != self.unguaranteed
        self.unguaranteed = unguaranteed

    def set_membership(self, membership: BudgetMembership | None) -> None:
        """Note `status.budget`, by which the owner of the policy's budget learns its request."""
        self.revision += membership != self.membership
        self.membership = membership

    def use(self, actor: ActorLike | None, error: ModelUnavailableError | None) -> None:
        """Note the actor that decides from now on; a report depends on its error."""
        self.revision += _text(error) != _text(self.actor_error)
        self.actor, self.actor_error = actor, error

    def decided(self, outcome: Outcome) -> None:
        """Note flags, placement and weights of a decision; between two actions the flags of the last one stand."""
        decision = outcome.decision
        if decision is None:
            return
        flags = int(decision.flags[0])
        if outcome.entry.kind == "action":
            self.action_flags, self.outside = flags, outcome.outside
        shown = (self.action_flags | flags, int(decision.placement[0]), decision.weights[0].tolist())
        self.revision += shown != self._shown
        self._shown = shown

    def keep_desired(self, outcome: Outcome, acts: bool, pending: Mapping[str, int]) -> None:
        """Note the decided replicas; `pending` are the replicas by pool that an earlier decision waits for.

        Where the policy does not act, a tick between two actions without a change only shows the running replicas.
        """
        decision = outcome.decision
        if decision is None:
            return
        changes = bool((decision.desired != decision.base).any())
        if outcome.entry.kind == "action" or changes or acts or not self.desired:
            self.desired = {pool: int(decision.desired[0, i]) for i, pool in enumerate(POOLS)} | dict(pending)


def _text(error: ModelUnavailableError | None) -> str | None:
    return None if error is None else str(error)


@dataclass(slots=True)
class PromotionState:
    """The policy's promotion, and its comparison with the service that really runs. `shadow/shadows.py` writes it."""

    status: PromotionStatus | None = None
    today: EvidenceDay | None = None
    """Today's comparison as of the last action."""
    valid_for: tuple[int, ActorLike | None] | None = None
    """Generation and actor of which the status is."""
    revision: int = 0
    """Grows with every change that a report depends on."""

    def set_status(self, status: PromotionStatus, generation: int, actor: ActorLike | None) -> None:
        """Note a status; a report depends on its state and reason alone, not on its figures."""
        self.revision += _stage(status) != _stage(self.status)
        self.status, self.valid_for = status, (generation, actor)


def _stage(status: PromotionStatus | None) -> tuple[str, str | None] | None:
    return None if status is None else (status.state, status.reason)
