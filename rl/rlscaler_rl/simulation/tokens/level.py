"""The token level: replicas of model servers behind a router, N services at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Int
from rlscaler_rl.simulation.compiled import called
from rlscaler_rl.simulation.pods import uniform
from rlscaler_rl.simulation.tokens import state as states
from rlscaler_rl.simulation.tokens.batching import append, complete, end_attempt, expire, interrupt, plan, sync
from rlscaler_rl.simulation.tokens.services import LEAST_LOADED, Requests, Services, checked
from rlscaler_rl.simulation.tokens.state import (
    ANSWERING,
    DRAINING,
    EMPTY,
    IDLE,
    NEVER,
    NOBODY,
    READY,
    RETRIES,
    STARTING,
    Fleet,
)


class TokenLevel:
    """N services at once. A removed replica goes on with its requests for `drain_seconds`, and is paid for."""

    def __init__(self, services: Services, requests: Requests) -> None:
        self.services, self.requests = services, checked(requests, services)
        self.facts, self.fleet = states.facts_of(services), states.begin(services, requests)

    @property
    def time(self) -> float:
        """Seconds since the begin."""
        return float(self.fleet.service["time"][0])

    def scale(self, desired: Int) -> None:
        """Order so many replicas (N,): of too many the starting ones go first, then the newest."""
        _scale(self.facts, self.requests, self.fleet, np.asarray(desired, np.int64))

    def order(self, n: int) -> int:
        """Order one pod of service `n`, and return its slot. A router needs one that is ready at all times."""
        return int(_order(self.facts, self.requests, self.fleet, n))

    def bring_up(self, n: int, slot: int) -> None:
        """Let a starting pod be ready now."""
        pod, service = self.fleet.pod[n, slot], self.fleet.service[n]
        pod["ready_at"] = service["time"]
        service["next_ready"] = min(service["next_ready"], service["time"])

    def remove(self, n: int, slot: int) -> None:
        """Remove one pod: a starting one is gone, a ready one drains."""
        _end(self.facts, self.fleet, n, slot)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        _advance(self.facts, self.requests, self.fleet, self.time + seconds)


@called
def _scale(facts: NDArray[Any], requests: Requests, fleet: Fleet, desired: NDArray[np.int64]) -> None:
    for n in range(len(facts)):
        service, fact = fleet.service[n], facts[n]
        count = 0
        for a in range(service.alive):
            count += fleet.pod[n, fleet.alive[n, a]].phase in (STARTING, READY)
        while count < desired[n]:
            _start(requests, fleet, fact, service, n)
            count += 1
        while count > desired[n]:
            _remove(fleet, fact, service, n)
            count -= 1
        service.target = desired[n]
        _tidy(fleet, service, n)


@called
def _order(facts: NDArray[Any], requests: Requests, fleet: Fleet, n: int) -> int:
    slot = _start(requests, fleet, facts[n], fleet.service[n], n)
    fleet.service[n].target += 1
    return slot


@called
def _end(facts: NDArray[Any], fleet: Fleet, n: int, slot: int) -> None:
    service = fleet.service[n]
    _leave(service, facts[n], fleet.pod[n, slot])
    service.target -= 1
    _tidy(fleet, service, n)


@called
def _start(requests: Requests, fleet: Fleet, fact: Any, service: Any, n: int) -> int:
    """Order a pod, in a slot that is free, or else that of the pod that has drained for longest. Return the slot."""
    slot, oldest = NOBODY, NOBODY
    for s in range(fleet.pod.shape[1]):
        pod = fleet.pod[n, s]
        if pod.phase == EMPTY:
            slot = s
            break
        if pod.phase == DRAINING and (oldest == NOBODY or pod.drain_until < fleet.pod[n, oldest].drain_until):
            oldest = s
    if slot == NOBODY:
        slot = oldest
        _cut(requests, fleet, fact, service, n, slot)
        _tidy(fleet, service, n)
    pod = fleet.pod[n, slot]
    drawn = uniform(np.uint64(fact.seed), 0, service.created)
    pod.phase, pod.number, pod.created = STARTING, service.created, service.time
    pod.ready_at = service.time + fact.cold_start_low + (fact.cold_start_high - fact.cold_start_low) * drawn
    pod.served, pod.step, pod.held, pod.running, pod.joining = 0.0, 0, 0, 0, 0
    pod.waiting, pod.partial, pod.head, pod.tail = 0, NOBODY, NOBODY, NOBODY
    pod.work, pod.due, pod.finish = IDLE, NEVER, int(NEVER)
    fleet.alive[n, service.alive] = slot
    service.alive += 1
    service.created += 1
    service.next_ready = min(service.next_ready, pod.ready_at)
    return slot


@called
def _remove(fleet: Fleet, fact: Any, service: Any, n: int) -> None:
    """Remove the newest starting pod, or else let the newest ready one drain."""
    newest, starts = NOBODY, False
    for a in range(service.alive):
        s = fleet.alive[n, a]
        pod = fleet.pod[n, s]
        if pod.phase not in (STARTING, READY) or (starts and pod.phase == READY):
            continue
        first = newest == NOBODY or (pod.phase == STARTING and not starts)
        if first or pod.number > fleet.pod[n, newest].number:
            newest, starts = s, pod.phase == STARTING
    _leave(service, fact, fleet.pod[n, newest])


@called
def _leave(service: Any, fact: Any, pod: Any) -> None:
    """End a starting or idle pod; let any other drain."""
    if pod.phase == STARTING:
        service.started += service.time - pod.created
        _gone(service, pod, service.time)
    elif pod.work == IDLE:
        _gone(service, pod, service.time)
    else:
        pod.phase, pod.drain_until = DRAINING, service.time + fact.drain_seconds


@called
def _gone(service: Any, pod: Any, now: float) -> None:
    if pod.phase != STARTING:
        service.started += pod.ready_at - pod.created
    service.billed += now - pod.created
    pod.phase, pod.due, pod.work = EMPTY, NEVER, IDLE


@called
def _tidy(fleet: Fleet, service: Any, n: int) -> None:
    """Take the pods that are gone off the list, and note when the next one will be ready."""
    left, soonest = 0, NEVER
    for a in range(service.alive):
        s = fleet.alive[n, a]
        pod = fleet.pod[n, s]
        if pod.phase != EMPTY:
            fleet.alive[n, left] = s
            left += 1
        if pod.phase == STARTING:
            soonest = min(soonest, pod.ready_at)
    service.alive, service.next_ready = left, soonest


@called
def _cut(requests: Requests, fleet: Fleet, fact: Any, service: Any, n: int, s: int) -> None:
    """End a draining pod with all its requests, whose clients try again."""
    pod, now = fleet.pod[n, s], service.time
    sync(fact, service, pod, now)
    for k in range(pod.running + pod.joining):
        i = fleet.run[n, s, k]
        if k < pod.running:
            fleet.generated[i] = requests.answer[i] - (fleet.end[n, s, k] - pod.step)
        end_attempt(requests, fleet, fact, service, n, i, now)
    if pod.partial != NOBODY:
        end_attempt(requests, fleet, fact, service, n, pod.partial, now)
    i = pod.head
    while i != NOBODY:
        following = fleet.follower[i]
        end_attempt(requests, fleet, fact, service, n, i, now)
        i = following
    _gone(service, pod, now)


@called
def _advance(facts: NDArray[Any], requests: Requests, fleet: Fleet, until: float) -> None:
    for n in range(len(facts)):
        service, fact = fleet.service[n], facts[n]
        last = requests.first[n + 1]
        while True:
            now, what = until, 0
            if service.next < last and requests.arrived[service.next] < now:
                now, what = requests.arrived[service.next], 1
            if service.retry_first < service.retry_last and fleet.retry_at[n, service.retry_first % RETRIES] < now:
                # A client is seen to have given up when its replica looks at its queue, which may be later.
                now, what = max(fleet.retry_at[n, service.retry_first % RETRIES], service.time), 2
            if service.next_ready < now:
                now, what = service.next_ready, 3
            service.time = max(service.time, now)
            for a in range(service.alive):
                s = fleet.alive[n, a]
                pod = fleet.pod[n, s]
                while pod.due <= now:
                    complete(requests, fleet, fact, service, pod, n, s)
            if what == 1:
                service.next += 1
                service.arrived += 1
                _arrive(requests, fleet, fact, service, n, service.next - 1, now)
            elif what == 2:
                i = fleet.retry[n, service.retry_first % RETRIES]
                service.retry_first += 1
                _arrive(requests, fleet, fact, service, n, i, now)
            elif what == 3:
                for a in range(service.alive):
                    pod = fleet.pod[n, fleet.alive[n, a]]
                    if pod.phase == STARTING and pod.ready_at <= now:
                        pod.phase, pod.clock = READY, pod.ready_at
                _tidy(fleet, service, n)
            else:
                break
        _end_of_tick(requests, fleet, fact, service, n, until)


@called
def _arrive(requests: Requests, fleet: Fleet, fact: Any, service: Any, n: int, i: int, now: float) -> None:
    """Route a request to a ready replica."""
    service.attempts += 1
    service.prompt_in += requests.prompt[i]
    service.answer_in += requests.answer[i]
    fleet.attempts[i] += 1
    fleet.attempted[i] = now
    count = service.alive
    chosen, least = NOBODY, 1 << 60
    service.turn = (service.turn + 1) % count
    for k in range(count):
        s = fleet.alive[n, (service.turn + k) % count]
        pod = fleet.pod[n, s]
        if pod.phase != READY:
            continue
        load = pod.running + pod.joining + pod.waiting + (pod.partial != NOBODY)
        if load < least:
            chosen, least = s, load
            if fact.routing != LEAST_LOADED:
                service.turn = (service.turn + k) % count
                break
    pod = fleet.pod[n, chosen]
    pod.routed += 1
    append(fleet, pod, i)
    if pod.work == IDLE:
        pod.clock = now
        plan(requests, fleet, fact, service, pod, n, chosen)
    elif pod.work == ANSWERING and pod.waiting == 1:
        interrupt(requests, fleet, fact, service, pod, n, chosen, now)


@called
def _end_of_tick(requests: Requests, fleet: Fleet, fact: Any, service: Any, n: int, until: float) -> None:
    """Bring counters and queues up to date, and end pods that have drained."""
    service.time = until
    for a in range(service.alive):
        s = fleet.alive[n, a]
        pod = fleet.pod[n, s]
        sync(fact, service, pod, until)
        expire(requests, fleet, fact, service, pod, n, until)
        if pod.phase == DRAINING:
            if pod.work == IDLE:
                _gone(service, pod, max(pod.clock, pod.drain_until - fact.drain_seconds))
            elif pod.drain_until <= until:
                _cut(requests, fleet, fact, service, n, s)
    _tidy(fleet, service, n)
