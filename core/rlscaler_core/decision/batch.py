"""Decisions for many policies in one batch, in which the failure of one does not reach the others."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.decide import Kind, decide
from rlscaler_core.decision.guards import HOLDS
from rlscaler_core.decision.observation import ObservationContract, sense
from rlscaler_core.decision.tables import initial_state
from rlscaler_core.decision.types import Decision, Observation, Params, Rows, Samples, State

log = logging.getLogger("rlscaler.decisions")

Table = TypeVar("Table", bound=Rows)

JOINED_ROWS, JOINED_TABLES = 4096, 32
"""Joined tables that are remembered, the newest ones, and their rows in all: at most some 70 MB of states.

A few policies are in many small tables, of which only the newest is ever asked for again; thousands are in some large
ones.
"""


@dataclass(slots=True)
class Entry:
    """Inputs of one policy to a batch; every table has one row."""

    params: Params
    state: State
    samples: Samples
    kind: Kind
    actor: ActorLike | None
    generation: int = 0
    """Generation of the spec that the parameters were made from."""


@dataclass(slots=True)
class Outcome:
    """Result for one policy; every table has one row. Where `error` is set, nothing was decided."""

    entry: Entry
    state: State
    decision: Decision | None = None
    observation: Observation | None = None
    outside: str = ""
    """Why the actor's envelope does not cover the policy; empty where it does."""
    granted: str = ""
    """The grant of an RLScalingBudget and why it is not more; empty where none limits the decision."""
    sharing: str = ""
    """ID of the record of the grants of that RLScalingBudget; empty without one."""
    error: Exception | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds that each stage before the writes took; stages of a batch took the whole batch so long."""
    moves: bool = True
    """The decision changes replicas."""
    guarded: bool = True
    """A guard changed something or stood in the way."""
    recorded: bool = False
    """The decision is in the audit log."""


class Joins(Generic[Table]):
    """Joins tables of a row each, and caches the newest joined tables."""

    def __init__(self) -> None:
        self._known: list[tuple[list[Table], Table]] = []

    def join(self, parts: list[Table]) -> Table:
        """Return all rows of `parts` in order, in a table that must not be written to."""
        for number, (known, table) in enumerate(self._known):
            if len(known) == len(parts) and all(map(is_, known, parts)):
                self._known.insert(0, self._known.pop(number))
                return table
        table = type(parts[0]).concat(parts)
        self.note(parts, table)
        return table

    def note(self, parts: list[Table], table: Table) -> None:
        """Remember that `parts` are the rows of `table`, in order."""
        self._known.insert(0, (parts, table))
        del self._known[JOINED_TABLES:]
        while len(self._known) > 1 and sum(len(known) for known, _ in self._known) > JOINED_ROWS:
            self._known.pop()

    def forget(self, parts: list[Table]) -> None:
        """Forget `parts`, which will not be joined again."""
        self._known = [entry for entry in self._known if entry[0][0] is not parts[0]]


class Tables:
    """Caches of the tables that a batch shares with the batch before: params, states and samples."""

    def __init__(self) -> None:
        self.params, self.states, self.samples = Joins[Params](), Joins[State](), Joins[Samples]()


def decide_all(entries: Sequence[Entry], *, tables: Tables | None = None) -> list[Outcome]:
    """Decide for all entries, in their order. A batch that fails is taken apart to find the entry that fails.

    The rows of the outcomes are views of the batch's tables. `tables` remember from one batch to the next.
    """
    tables = tables or Tables()
    outcomes: list[Outcome | None] = [None] * len(entries)
    for numbers in _groups(entries):
        results = _halving([entries[i] for i in numbers], tables)
        for i, result in zip(numbers, results, strict=True):
            outcomes[i] = result
    return [outcome for outcome in outcomes if outcome is not None]


def fresh_state(actor: ActorLike | None, replicas: tuple[int, int], time: float) -> State:
    """Return the state of a policy that was just taken over, with its present `replicas`; `time` is in seconds.

    As in the HPA controller, these replicas are the first recommendation: nothing is scaled down before a full
    stabilization window has passed.
    """
    return starting_state(stack_size(actor), replicas, time)


def starting_state(stack: int, replicas: tuple[int, int], time: float) -> State:
    """Return the `fresh_state` for an actor that looks at the last `stack` observations; `time` is in seconds."""
    state = initial_state(1, stack)
    state.recommendation_time[0, :, 0] = time
    state.recommendation[0, :, 0] = replicas
    return state


def with_stack(state: State, actor: ActorLike | None) -> State:
    """Return the same state for an actor that may look at another number of observations."""
    size = stack_size(actor)
    if actor is None or state.stack.shape[1] == size:
        return state
    empty = initial_state(1, size)
    return replace(state, stack=empty.stack, stacked=empty.stacked)


def stack_size(actor: ActorLike | None) -> int:
    return ObservationContract().stack_size if actor is None else actor.manifest.stack_size


def _groups(entries: Sequence[Entry]) -> list[list[int]]:
    groups: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for i, entry in enumerate(entries):
        actor = id(entry.actor) if entry.kind == "action" else 0
        groups[entry.kind, actor, entry.state.stack.shape[1]].append(i)
    return list(groups.values())


def _halving(entries: list[Entry], tables: Tables) -> list[Outcome]:
    """Decide for all entries; one that fails among N costs about log N further batches instead of N."""
    try:
        return _decide(entries, tables)
    except Exception as error:
        if len(entries) == 1:
            return [Outcome(entries[0], entries[0].state, error=error)]
        log.warning("a batch of %d decisions failed: its halves are tried", len(entries), exc_info=True)
    half = len(entries) // 2
    return [*_halving(entries[:half], tables), *_halving(entries[half:], tables)]


def _decide(entries: list[Entry], tables: Tables) -> list[Outcome]:
    before = [e.state for e in entries]
    params = tables.params.join([e.params for e in entries])
    state = tables.states.join(before)
    samples = tables.samples.join([e.samples for e in entries])
    state = sense(params, state, samples)
    actor = entries[0].actor
    decision, observation, state = decide(params, state, samples, actor, kind=entries[0].kind)
    outside = [""] * len(entries)
    if observation is not None and actor is not None:
        _, outside = actor.manifest.outside(params, samples.age_seconds[:, 0], observation)
    after = [state.view(_row(i)) for i in range(len(entries))]
    tables.states.forget(before)
    tables.states.note(after, state)
    moves = (decision.desired != decision.base).any(axis=1).tolist()
    guarded = _guarded(decision).tolist()
    return [
        Outcome(
            entry=entry,
            state=after[i],
            decision=decision.view(_row(i)),
            observation=None if observation is None else observation.view(_row(i)),
            outside=outside[i],
            moves=moves[i],
            guarded=guarded[i],
        )
        for i, entry in enumerate(entries)
    ]


def _row(i: int) -> slice:
    return slice(i, i + 1)


def _guarded(decision: Decision) -> NDArray[np.bool_]:
    """Where (N,) a guard changed the replicas or stood in the way."""
    changed = (decision.trail[:, 1:] != decision.trail[:, :-1]).any(axis=(1, 2))
    guarded: NDArray[np.bool_] = changed | ((decision.flags & int(HOLDS)) != 0)
    return guarded
