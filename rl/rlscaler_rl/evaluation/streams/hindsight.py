"""Consumers ordered with every message to come known: dynamic programming on a fluid model.

The state is the number of consumers and of waiting messages. At each step of `STEP_SECONDS` the planner keeps its
number, orders more, which read after their cold start, or takes some away. Its cost is the J of `streams.ledger`.
Messages are one queue here: partitions are not kept apart, and a rebalance is the time in which a share of the group
does not read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float, Int
from rlscaler_rl.simulation.episode import LATE_WEIGHT
from rlscaler_rl.simulation.streams.episode import StreamResult, played
from rlscaler_rl.simulation.streams.groups import STEP_SECONDS as LEVEL_SECONDS
from rlscaler_rl.simulation.streams.groups import Groups
from rlscaler_rl.simulation.streams.ledger import consumer_price
from rlscaler_rl.simulation.streams.level import StreamLevel
from rlscaler_rl.simulation.streams.protocols import FETCH_SECONDS, JOIN_SECONDS, PROTOCOLS, SYNC_SECONDS, in_ranges

STEP_SECONDS = 5.0
DRAIN_STEPS = 60
"""Steps after the load in which messages may still be processed."""

POINTS = 256
"""Numbers of waiting messages whose value is kept; between them it is interpolated."""

MOST_WAITING = 8.0
"""Objectives' worth of messages at full capacity; more that wait count as so many."""


class Caution(NamedTuple):
    """Assumptions of the planner where the fluid model leaves something open."""

    delay: float
    """0 to 1: newcomers read after the mean of cold start and wait for the next heartbeat, or after the longest."""
    capacity: float
    """Share of their rate that consumers are taken to process."""
    objective: float
    """Share of the objective that messages may wait."""


CAUTIONS = tuple(Caution(*one) for one in product((0.0, 1.0), (0.95, 1.0), (1.0, 0.6)))
"""All are planned with, and of each group the plan counts that did best when it was played."""

USUAL = Caution(1.0, 0.95, 1.0)
LONG_SECONDS = 1800
"""A longer load is planned with the usual caution alone; all of them would take minutes."""

MOST_COUNTS = 16
"""Numbers of consumers that are considered; of more that make a difference, as many that lie apart evenly."""


@dataclass(frozen=True, slots=True)
class Model:
    """One group, as the planner sees it; T steps of load and `DRAIN_STEPS` more."""

    counts: Int  # (C,) consumers to choose from, rising
    first: int  # index of the consumers at the begin
    capacity: Float  # (C, C) messages of a step in which the consumers of the row have become those of the column
    delay: int  # steps from an order until the newcomers read
    written: Float  # (T + DRAIN_STEPS + 1,) messages that came before the begin of each step
    overdue: Float  # (T + DRAIN_STEPS + 1,) messages that came an objective or longer before it
    price: Float  # (C,) of J, for a step with so many consumers
    late_price: float  # of J, for one message
    left_price: float  # of J, for a message that waits at the load's end
    most: float  # waiting messages up to which values are kept

    @property
    def steps(self) -> int:
        return len(self.written) - 1 - DRAIN_STEPS


def model_of(groups: Groups, row: int, caution: Caution) -> Model:
    """The group in one row."""
    counts, first = _counts(groups, row)
    capacity = caution.capacity * _capacity(groups, row, counts)
    written = np.concatenate([[0.0], np.cumsum(groups.arrivals[row].sum(axis=0, dtype=np.float64))])
    steps = math.ceil(groups.seconds / STEP_SECONDS) + DRAIN_STEPS
    moments = STEP_SECONDS * np.arange(steps + 1)
    ends = LEVEL_SECONDS * np.arange(len(written))
    slo, rate, messages = (
        caution.objective * float(groups.slo_seconds[row]),
        float(groups.rate[row]),
        max(float(written[-1]), 1.0),
    )
    price, late_price = float(consumer_price(groups)[row]) / groups.seconds, 100 * LATE_WEIGHT / messages
    return Model(
        counts=counts,
        first=first,
        capacity=STEP_SECONDS * capacity[None, :] - _stopped(groups, row, counts, capacity),
        delay=max(1, round(_delay_seconds(groups, row, caution) / STEP_SECONDS)),
        written=np.interp(moments, ends, written),
        overdue=np.interp(moments - slo, ends, written),
        price=price * STEP_SECONDS * counts.astype(np.float64),
        late_price=late_price,
        left_price=price / rate,
        most=max(MOST_WAITING * slo * float(capacity.max()), 1.0),
    )


def _counts(groups: Groups, row: int) -> tuple[Int, int]:
    """The numbers of consumers that make a difference, those at the begin among them, and the index of these."""
    partitions, initial = int(groups.partitions[row]), int(groups.initial[row])
    fewest, most = int(groups.min_replicas[row]), int(min(groups.max_replicas[row], partitions))
    useful = {-(-partitions // each) for each in range(1, partitions + 1)}
    within = sorted({min(fewest, most)} | {count for count in useful if fewest <= count <= most})
    apart = np.unique(np.linspace(0, len(within) - 1, MOST_COUNTS).round().astype(int))
    chosen = sorted({initial} | {within[place] for place in apart})
    return np.array(chosen, np.int32), chosen.index(initial)


def _capacity(groups: Groups, row: int, counts: Int) -> Float:
    """(C,) messages/s at which no partition falls behind for good: its busiest consumer is full."""
    share = groups.share[row, : groups.partitions[row]]
    found = []
    for count in counts.tolist():
        owners = in_ranges(len(share), range(count))
        busiest = np.bincount(owners, share, minlength=count).max()
        beside = float(groups.rate_beside(np.full(len(groups), min(count, len(share)), np.int32))[row])
        found.append(beside / busiest)
    return np.array(found)


def _stopped(groups: Groups, row: int, counts: Int, capacity: Float) -> Float:
    """(C, C) messages that a change keeps from being processed in its step: partitions of those that leave wait for a
    heartbeat; those that move, or all of them, for the end of a batch and the first fetch."""
    protocol = PROTOCOLS[groups.protocol[row]]
    before, after = counts[:, None].astype(np.float64), counts[None, :].astype(np.float64)
    moved = np.abs(after - before) / np.maximum(before, after)
    share = np.where(moved > 0, 1.0, 0.0) if protocol.stops_all else moved
    short = float(groups.batch[row] / groups.rate[row]) / 2 + SYNC_SECONDS + FETCH_SECONDS
    orphaned = np.where(after < before, moved * protocol.heartbeat_seconds / 2, 0.0)
    return np.asarray(capacity[None, :] * np.minimum(share * short + orphaned, STEP_SECONDS))


def _delay_seconds(groups: Groups, row: int, caution: Caution) -> float:
    low, high = float(groups.cold_start_low[row]), float(groups.cold_start_high[row])
    beat = PROTOCOLS[groups.protocol[row]].heartbeat_seconds
    return low + (high - low) * (1 + caution.delay) / 2 + JOIN_SECONDS + beat * (1 + caution.delay) / 2


def hindsight(groups: Groups) -> StreamResult:
    """Play the plans; of each group the plan with the least J counts.

    A reference for the value of foresight, and no bound: the planner's model is simpler than the level.
    """
    cautions = (USUAL,) if groups.seconds > LONG_SECONDS else CAUTIONS
    rows = np.repeat(np.arange(len(groups)), len(cautions))
    plans = [plan_of(model_of(groups, row, caution)) for row, caution in product(range(len(groups)), cautions)]
    asked = np.stack(plans, axis=1)

    def tick(second: float) -> Int | None:
        return None if second % STEP_SECONDS else asked[min(int(second // STEP_SECONDS), len(asked) - 1)]

    result = played(StreamLevel(groups.take(rows)), tick).result
    best = result.j.reshape(-1, len(cautions)).argmin(axis=1)
    return result.take(len(cautions) * np.arange(len(groups)) + best)


class Step(NamedTuple):
    """Result of a step with given consumers."""

    waiting: Float  # messages that wait after it
    late: Float  # messages processed in it that were late


def step(model: Model, number: int, waiting: Float, room: Float) -> Step:
    """Let the step of that number pass, with `waiting` messages at its begin, of which up to `room` are processed.

    Messages are processed in the order in which they came, evenly over the step: late are those processed while
    messages wait that are overdue.
    """
    there = waiting + model.written[number + 1] - model.written[number]
    done = np.minimum(there, room)
    after = there - done
    behind = model.overdue[number] - (model.written[number] - waiting)
    behind_after = model.overdue[number + 1] - (model.written[number + 1] - after)
    ahead, over = np.maximum(-np.minimum(behind, behind_after), 0.0), np.maximum(behind, behind_after)
    share = np.where(over <= 0, 0.0, np.clip(over / np.where(over > 0, over + ahead, 1.0), 0.0, 1.0))
    return Step(after, done * share)


def values_of(model: Model) -> NDArray[np.float32]:
    """(T + 1, C, POINTS) least J still to come before each step, with so many consumers and `points` waiting."""
    points, counts = _points(model), len(model.counts)
    waiting = np.broadcast_to(points, (counts, POINTS))
    own = np.diag(model.capacity)[:, None]
    ahead = np.broadcast_to(model.late_price * points, (counts, POINTS))
    for number in reversed(range(model.steps, model.steps + DRAIN_STEPS)):
        passed = step(model, number, waiting, own)
        ahead = model.late_price * passed.late + _at(ahead, passed.waiting, model)
    values = np.empty((model.steps + 1, counts, POINTS), np.float32)
    values[-1] = ahead + model.left_price * points
    for number in reversed(range(model.steps)):
        values[number] = choices(model, values, number, waiting).min(axis=1)
    return values


def choices(model: Model, values: NDArray[np.float32], number: int, waiting: Float) -> Float:
    """(C, C, M) J to come with the consumers of the first axis, of which those of the second are asked for at the step
    of that number, while `waiting` (C, M) messages wait; infinity where orders would come after the load."""
    counts = len(model.counts)
    found = np.full((counts, counts, waiting.shape[1]), np.inf)
    fewer = np.tril(np.ones((counts, counts), bool))
    at_once = step(model, number, waiting[:, None], model.capacity[:, :, None])
    later = _at(values[number + 1], at_once.waiting, model)
    cost = model.price[None, :, None] + model.late_price * at_once.late + later
    found[fewer] = cost[fewer]
    joined = number + model.delay
    if joined >= model.steps:
        return found
    late, own = np.zeros_like(waiting), np.diag(model.capacity)[:, None]
    for passing in range(number, joined):
        waiting, more = step(model, passing, waiting, own)
        late = late + more
    then = step(model, joined, waiting[:, None], model.capacity[:, :, None])
    later = _at(values[joined + 1], then.waiting, model)
    paid = (model.delay + 1) * model.price[None, :, None]
    cost = paid + model.late_price * (late[:, None] + then.late) + later
    found[~fewer] = cost[~fewer]
    return found


def plan_of(model: Model) -> Int:
    """(T,) consumers to ask for at each step."""
    values = values_of(model)
    asked = np.empty(model.steps, np.int32)
    count, waiting, number = model.first, 0.0, 0
    while number < model.steps:
        given = np.full((len(model.counts), 1), waiting)
        chosen = int(choices(model, values, number, given)[count, :, 0].argmin())
        joined = number + (model.delay if chosen > count else 0)
        for passing in range(number, joined + 1):
            room = model.capacity[count, chosen if passing == joined else count]
            waiting = float(step(model, passing, np.array(waiting), room).waiting)
        asked[number : joined + 1] = model.counts[chosen]
        count, number = chosen, joined + 1
    return asked


def _points(model: Model) -> Float:
    """(POINTS,) close together where few messages wait."""
    return np.asarray(model.most * np.linspace(0.0, 1.0, POINTS) ** 2)


def _at(values: NDArray[np.floating], waiting: Float, model: Model) -> Float:
    """`values` (C, POINTS) where (..., C, M) messages wait, C being the consumers after the step."""
    place = (POINTS - 1) * np.sqrt(np.minimum(waiting / model.most, 1.0))
    below = np.minimum(place.astype(np.intp), POINTS - 2)
    points = _points(model)
    share = (np.minimum(waiting, model.most) - points[below]) / (points[below + 1] - points[below])
    rows = np.arange(len(values))[:, None]
    return np.asarray(values[rows, below] * (1 - share) + values[rows, below + 1] * share, np.float64)
