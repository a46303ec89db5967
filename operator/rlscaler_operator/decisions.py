"""Deciding for many policies in one batch, such that one of them cannot spoil it for the others."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from rlscaler_rl.decision.actor import ActorLike
from rlscaler_rl.decision.contract import ObservationContract
from rlscaler_rl.decision.decide import decide
from rlscaler_rl.decision.observation import observe, sense
from rlscaler_rl.decision.shield import ALL_GUARDS, act, floor_tick
from rlscaler_rl.decision.state import initial_state
from rlscaler_rl.decision.types import Decision, Observation, Params, Samples, State

log = logging.getLogger("rlscaler.decisions")

Kind = Literal["action", "floor"]


@dataclass(slots=True)
class Entry:
    """What one policy brings to a batch; every table has one row."""

    params: Params
    state: State
    samples: Samples
    kind: Kind
    actor: ActorLike | None
    generation: int = 0
    """Of the spec that this was made from."""


@dataclass(slots=True)
class Outcome:
    """What came out for one policy; one row each. `error` set = nothing was decided."""

    entry: Entry
    state: State
    decision: Decision | None = None
    observation: Observation | None = None
    outside: str = ""
    """Why the actor's envelope does not cover the policy; empty = it does."""
    error: Exception | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each stage took before the writes; those of a batch are the whole batch's."""
    recorded: bool = False
    """Is it in the audit log?"""


def decide_all(entries: Sequence[Entry], *, without: frozenset[str] = ALL_GUARDS) -> list[Outcome]:
    """Outcomes in the order of the entries. A batch that fails is taken apart to find the entry that fails.

    `without` are guards to leave out, for explaining what they were worth; nothing that acts leaves one out.
    """
    outcomes: list[Outcome | None] = [None] * len(entries)
    for numbers in _groups(entries):
        results = _halving([entries[i] for i in numbers], without)
        for i, result in zip(numbers, results, strict=True):
            outcomes[i] = result
    return [outcome for outcome in outcomes if outcome is not None]


def fresh_state(actor: ActorLike | None, replicas: tuple[int, int], time: float) -> State:
    """State of a policy that was just taken over.

    As in the HPA controller, the replicas found are the first recommendation: nothing is scaled down before a full
    stabilization window has passed.
    """
    return starting_state(stack_size(actor), replicas, time)


def starting_state(stack: int, replicas: tuple[int, int], time: float) -> State:
    """`fresh_state` for whoever looks at the last `stack` observations."""
    state = initial_state(1, stack)
    state.recommendation_time[0, :, 0] = time
    state.recommendation[0, :, 0] = replicas
    return state


def with_stack(state: State, actor: ActorLike | None) -> State:
    """The same state for an actor that may look at another number of observations."""
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


def _halving(entries: list[Entry], without: frozenset[str]) -> list[Outcome]:
    """One entry that fails among N costs log N further batches, not N."""
    try:
        return _decide(entries, without)
    except Exception as error:
        if len(entries) == 1:
            return [Outcome(entries[0], entries[0].state, error=error)]
        log.warning("a batch of %d decisions failed: its halves are tried", len(entries), exc_info=True)
    half = len(entries) // 2
    return [*_halving(entries[:half], without), *_halving(entries[half:], without)]


def _decide(entries: list[Entry], without: frozenset[str]) -> list[Outcome]:
    params = Params.concat([e.params for e in entries])
    state = State.concat([e.state for e in entries])
    samples = Samples.concat([e.samples for e in entries])
    state = sense(params, state, samples)
    observation: Observation | None = None
    outside = [""] * len(entries)
    if entries[0].kind == "floor":
        decision, state = floor_tick(params, state, samples, without=without)
    elif (actor := entries[0].actor) is not None:
        decision, observation, state = decide(params, state, samples, actor, without=without)
        _, outside = actor.manifest.outside(params, samples.age_seconds[:, 0], observation)
    else:
        decision, observation, state = without_actor(params, state, samples, without)
    return [
        Outcome(
            entry=entry,
            state=state.take(_row(i)),
            decision=decision.take(_row(i)),
            observation=None if observation is None else observation.take(_row(i)),
            outside=outside[i],
        )
        for i, entry in enumerate(entries)
    ]


def _row(i: int) -> slice:
    return slice(i, i + 1)


def without_actor(
    params: Params, state: State, samples: Samples, without: frozenset[str] = ALL_GUARDS
) -> tuple[Decision, Observation, State]:
    """No model: observe, and let the shield hold and fall back."""
    n = len(params.slo_ms)
    observation, state = observe(params, state, samples, ObservationContract(stack_size=state.stack.shape[1]))
    nothing = np.zeros((n, 3), np.int32)
    decision, state = act(params, state, samples, observation, nothing, np.zeros(n, np.bool_), without=without)
    return decision, observation, state
