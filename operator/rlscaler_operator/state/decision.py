"""What deciding for a policy remembers from one tick to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlscaler_core.api.promotion import EvidenceDay, PromotionStatus
from rlscaler_core.api.status import Learned
from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import Outcome
from rlscaler_core.decision.types import POOLS, State
from rlscaler_operator.exceptions import ModelUnavailableError
from rlscaler_operator.sensing.capacity import Capacity
from rlscaler_operator.sensing.measure import Readings, nothing_measured
from rlscaler_operator.sensing.results import Reading


@dataclass(slots=True)
class DecisionState:
    """What was measured, learned and decided last. The ticks in `loop` write it.

    Fields that a report depends on are written by the methods, which tell a change by a new `revision`.
    """

    state: State | None = None
    """The decision function's memory, one row; None before the first decision."""
    actor: ActorLike | None = None
    actor_error: ModelUnavailableError | None = None
    """What is wrong with the model that the spec names."""
    readings: Readings = field(default_factory=nothing_measured)
    read_at: float = 0.0
    """Monotonic time of the readings."""
    latency: Reading | None = None
    """The percentile that is displayed."""
    capacity: dict[str, Capacity] = field(default_factory=dict)
    """What is being learned where the spec leaves it open, by pool."""
    learned: Learned | None = None
    """What is used where the spec leaves something open."""
    action_flags: int = 0
    """Flags of the last action."""
    outside: str = ""
    """Why the last action fell outside the actor's envelope."""
    desired: dict[str, int] = field(default_factory=dict)
    """Replicas by pool as last decided upon."""
    revision: int = 0
    """Grows with every change that a report depends on."""
    _known: list[tuple[str, bool]] = field(default_factory=list)
    """Why each reading is unknown, and whether it is too old."""
    _shown: tuple[object, ...] = ()
    """Flags, placement and weights of the last decision."""

    def nothing_there(self) -> None:
        """A Deployment does not exist: nothing can be measured, and deciding begins anew once it does."""
        self.state, self.readings = None, nothing_measured()

    def measured(self, readings: Readings, latency: Reading | None, now: float, max_age_seconds: float) -> None:
        """Readings of now; a report depends on which are known, not on their values."""
        self.readings, self.latency, self.read_at = readings, latency, now
        known = [(reading.reason, reading.age_seconds > max_age_seconds) for reading in readings.values()]
        self.revision += known != self._known
        self._known = known

    def learn(self, learned: Learned | None) -> None:
        self.revision += learned != self.learned
        self.learned = learned

    def use(self, actor: ActorLike | None, error: ModelUnavailableError | None) -> None:
        """The actor that decides from now on; a report depends on what is wrong with it."""
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

    def keep_desired(self, outcome: Outcome, acts: bool) -> None:
        """Note the replicas that were decided upon.

        Where the policy does not act, a tick between two actions that changes nothing says only what is there.
        """
        decision = outcome.decision
        if decision is None:
            return
        changes = bool((decision.desired != decision.base).any())
        if outcome.entry.kind == "action" or changes or acts or not self.desired:
            self.desired = {pool: int(decision.desired[0, i]) for i, pool in enumerate(POOLS)}


def _text(error: ModelUnavailableError | None) -> str | None:
    return None if error is None else str(error)


@dataclass(slots=True)
class PromotionState:
    """Whether the policy may act, and how it compares with what really runs. `shadow/shadows.py` writes it."""

    status: PromotionStatus | None = None
    today: EvidenceDay | None = None
    """Today's comparison as of the last action."""
    found_for: tuple[int, ActorLike | None] | None = None
    """Generation and actor that the status was found for."""
    revision: int = 0
    """Grows with every change that a report depends on."""

    def found(self, status: PromotionStatus, generation: int, actor: ActorLike | None) -> None:
        """A report depends on the state and its reason; the figures go into the status from time to time."""
        self.revision += _stage(status) != _stage(self.status)
        self.status, self.found_for = status, (generation, actor)


def _stage(status: PromotionStatus | None) -> tuple[str, str | None] | None:
    return None if status is None else (status.state, status.reason)
