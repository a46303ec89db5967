"""Continuous batching of one replica: iterations, stretches of them in closed form, chunked prompts, preemption.

A replica begins an iteration with the sequences whose answers go on, and fills the rest of its token budget with
prompts, first the one that it has begun, then those of its queue while sequences and KV cache last. Where no prompt
can be processed, all iterations until the next answer is complete are one stretch: with R sequences and H tokens held
the i-th of them takes a + b R + d (H + i R). A full KV cache preempts the newest sequence, which is computed again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rlscaler_rl.simulation.compiled import called, inlined
from rlscaler_rl.simulation.tokens.services import Requests
from rlscaler_rl.simulation.tokens.state import (
    ANSWERING,
    FIRST_BUCKETS,
    IDLE,
    NEVER,
    NOBODY,
    READING,
    RETRIES,
    TOKEN_BUCKETS,
    Fleet,
)

_FIRST, _TOKEN = FIRST_BUCKETS, TOKEN_BUCKETS
_NEVER = int(NEVER)


@inlined
def append(fleet: Fleet, pod: Any, i: int) -> None:
    """Put a request at the end of a replica's queue."""
    fleet.follower[i] = NOBODY
    if pod.head == NOBODY:
        pod.head = i
    else:
        fleet.follower[pod.tail] = i
    pod.tail = i
    pod.waiting += 1


@inlined
def pop(fleet: Fleet, pod: Any) -> int:
    """Take the first request of a replica's queue."""
    i = pod.head
    pod.head = fleet.follower[i]
    if pod.head == NOBODY:
        pod.tail = NOBODY
    pod.waiting -= 1
    return i


@called
def end_attempt(requests: Requests, fleet: Fleet, fact: Any, service: Any, n: int, i: int, now: float) -> None:
    """End an attempt whose client gave up or whose replica is gone: the client tries again, or gives up for good."""
    service.answer_lost += requests.answer[i] - fleet.generated[i]
    if fleet.generated[i] == 0:
        service.prompt_lost += requests.prompt[i]
    fleet.generated[i] = 0
    if fleet.attempts[i] > fact.retries or service.retry_last - service.retry_first >= RETRIES:
        fleet.attempts[i] = NOBODY
        service.lost += 1
        service.missed += not fleet.first[i] > fact.first_seconds
        return
    at = now + fact.retry_seconds
    j = service.retry_last
    while j > service.retry_first and fleet.retry_at[n, (j - 1) % RETRIES] > at:
        fleet.retry_at[n, j % RETRIES] = fleet.retry_at[n, (j - 1) % RETRIES]
        fleet.retry[n, j % RETRIES] = fleet.retry[n, (j - 1) % RETRIES]
        j -= 1
    fleet.retry_at[n, j % RETRIES], fleet.retry[n, j % RETRIES] = at, i
    service.retry_last += 1


@called
def expire(requests: Requests, fleet: Fleet, fact: Any, service: Any, pod: Any, n: int, now: float) -> None:
    """Take the requests out of the front of the queue whose clients have given up by `now`."""
    while pod.head != NOBODY:
        i = pod.head
        gone = fleet.attempted[i] + fact.patience
        if fleet.generated[i] > 0 or gone > now:
            return
        pop(fleet, pod)
        end_attempt(requests, fleet, fact, service, n, i, gone)


@called
def _preempt(requests: Requests, fleet: Fleet, service: Any, pod: Any, n: int, s: int) -> None:
    """Put the newest sequence back to the front of the queue."""
    pod.running -= 1
    i = fleet.run[n, s, pod.running]
    fleet.generated[i] = requests.answer[i] - (fleet.end[n, s, pod.running] - pod.step)
    pod.held -= requests.prompt[i] + fleet.generated[i]
    fleet.follower[i] = pod.head
    if pod.head == NOBODY:
        pod.tail = i
    pod.head = i
    pod.waiting += 1
    service.preempted += 1
    finish = _NEVER
    for k in range(pod.running):
        finish = min(finish, fleet.end[n, s, k])
    pod.finish = finish


@inlined
def _join(requests: Requests, fleet: Fleet, pod: Any, n: int, s: int, i: int) -> None:
    """Let a request be a sequence of the batch once the iteration under way is over, with its next token."""
    k = pod.running + pod.joining
    fleet.run[n, s, k] = i
    fleet.end[n, s, k] = pod.step + requests.answer[i] - fleet.generated[i]
    pod.joining += 1


@called
def plan(requests: Requests, fleet: Fleet, fact: Any, service: Any, pod: Any, n: int, s: int) -> None:
    """Begin the next iteration of a replica, or a stretch of iterations, at its `clock`."""
    while pod.running > 1 and pod.held + pod.running + 1 > fact.kv_tokens:
        _preempt(requests, fleet, service, pod, n, s)
    free, chunk = fact.batched_tokens - pod.running, 0
    if pod.partial != NOBODY:
        chunk = min(free, pod.left)
        pod.left -= chunk
        free -= chunk
        if pod.left == 0:
            _join(requests, fleet, pod, n, s, pod.partial)
            pod.partial = NOBODY
    expire(requests, fleet, fact, service, pod, n, pod.clock)
    while free > 0 and pod.partial == NOBODY and pod.head != NOBODY and pod.running + pod.joining < fact.sequences:
        i = pod.head
        whole = requests.prompt[i] + fleet.generated[i]
        if pod.held + whole + pod.running + pod.joining + 1 > fact.kv_tokens:
            break
        pop(fleet, pod)
        pod.held += whole
        need = whole
        if fleet.generated[i] == 0:
            known = requests.cached[i] * (1.0 - np.exp(-pod.served / fact.warm))
            need = max(int(whole * (1.0 - known)), 1)
        taken = min(free, need)
        free -= taken
        chunk += taken
        if taken < need:
            pod.partial, pod.left = i, need - taken
        else:
            _join(requests, fleet, pod, n, s, i)
    pod.chunk = chunk
    if chunk > 0:
        batch = pod.running + pod.joining + (pod.partial != NOBODY)
        pod.work, pod.stretch = READING, 1
        pod.due = pod.clock + fact.iteration + fact.sequence * batch + fact.prompt * chunk + fact.held * pod.held
    elif pod.running > 0:
        pod.work = ANSWERING
        pod.stretch = min(pod.finish - pod.step, max((fact.kv_tokens - pod.held) // pod.running, 1))
        pod.due = pod.clock + _seconds(fact, pod, pod.stretch)
    else:
        pod.work, pod.due = IDLE, NEVER


@inlined
def _seconds(fact: Any, pod: Any, count: int) -> float:
    """Seconds that so many iterations of a stretch take."""
    each = fact.iteration + fact.sequence * pod.running + fact.held * pod.held
    return count * each + fact.held * pod.running * (0.5 * count * (count - 1))


@inlined
def _iterations(fact: Any, pod: Any, seconds: float) -> int:
    """Whole iterations of a stretch within so many seconds."""
    half = 0.5 * fact.held * pod.running
    each = fact.iteration + fact.sequence * pod.running + fact.held * pod.held - half
    count = int(2.0 * seconds / (each + np.sqrt(each * each + 4.0 * half * seconds)))
    return min(max(count, 0), pod.stretch)


@inlined
def _progress(fact: Any, service: Any, pod: Any, count: int) -> None:
    """Let so many iterations of the stretch under way pass."""
    seconds = _seconds(fact, pod, count)
    held = count * pod.held + pod.running * (0.5 * count * (count - 1))
    service.iterations += count
    service.sequence_steps += count * pod.running
    service.held_steps += held
    service.busy += seconds
    service.answer_done += count * pod.running
    pod.answer_done += count * pod.running
    pod.held += count * pod.running
    pod.step += count
    pod.stretch -= count
    pod.clock += seconds


@inlined
def sync(fact: Any, service: Any, pod: Any, now: float) -> None:
    """Count the iterations of a stretch that are over by `now`."""
    if pod.work == ANSWERING and now > pod.clock:
        count = _iterations(fact, pod, now - pod.clock)
        if count < pod.stretch:
            _progress(fact, service, pod, count)


@called
def interrupt(requests: Requests, fleet: Fleet, fact: Any, service: Any, pod: Any, n: int, s: int, now: float) -> None:
    """End a stretch with the iteration that is under way at `now`, for the sake of a request that has come."""
    if now > pod.clock:
        pod.stretch = min(_iterations(fact, pod, now - pod.clock) + 1, pod.stretch)
        pod.due = pod.clock + _seconds(fact, pod, pod.stretch)
    else:
        plan(requests, fleet, fact, service, pod, n, s)


@called
def complete(requests: Requests, fleet: Fleet, fact: Any, service: Any, pod: Any, n: int, s: int) -> None:
    """End the iteration or stretch that is due, and begin the next."""
    if pod.work == READING:
        _read(requests, fleet, fact, service, pod, n, s)
    else:
        due = pod.due
        _progress(fact, service, pod, pod.stretch)
        pod.clock = due
    service.fullest = max(service.fullest, pod.held / fact.kv_tokens)
    if pod.step >= pod.finish:
        _finish(requests, fleet, fact, service, pod, n, s)
    plan(requests, fleet, fact, service, pod, n, s)


@called
def _read(requests: Requests, fleet: Fleet, fact: Any, service: Any, pod: Any, n: int, s: int) -> None:
    """Account for an iteration with prompts: those that are processed get the first token of their answer."""
    batch = pod.running + pod.joining + (pod.partial != NOBODY)
    service.iterations += 1
    service.sequence_steps += batch
    service.held_steps += pod.held
    service.computed += pod.chunk
    service.busy += pod.due - pod.clock
    service.answer_done += pod.running + pod.joining
    pod.answer_done += pod.running + pod.joining
    pod.held += pod.running + pod.joining
    pod.clock = pod.due
    pod.step += 1
    for k in range(pod.running, pod.running + pod.joining):
        i = fleet.run[n, s, k]
        pod.finish = min(pod.finish, fleet.end[n, s, k])
        if fleet.generated[i] > 0:
            continue
        pod.served += 1.0
        service.prompt_done += requests.prompt[i]
        pod.prompt_done += requests.prompt[i]
        fleet.began[i] = pod.clock
        # Of a request whose replica was cut the first token is counted again, and it is late once.
        before = fleet.first[i] > fact.first_seconds
        fleet.first[i] = pod.clock - requests.arrived[i] + fact.request
        service.missed += fleet.first[i] > fact.first_seconds and not before
        taken = pod.clock - fleet.attempted[i]
        least = max(int(requests.prompt[i] * (1.0 - requests.cached[i])), 1)
        service.slack = min(service.slack, taken - fact.iteration - fact.sequence - fact.prompt * least)
        b = 0
        while b < len(_FIRST) and taken > _FIRST[b]:
            b += 1
        fleet.first_seen[n, s, b] += 1.0
    pod.running += pod.joining
    pod.joining = 0


@called
def _finish(requests: Requests, fleet: Fleet, fact: Any, service: Any, pod: Any, n: int, s: int) -> None:
    """Take the sequences whose answers are complete out of the batch."""
    left, finish = 0, _NEVER
    for k in range(pod.running):
        i, end = fleet.run[n, s, k], fleet.end[n, s, k]
        if end > pod.step:
            fleet.run[n, s, left], fleet.end[n, s, left] = i, end
            finish = min(finish, end)
            left += 1
            continue
        answer = requests.answer[i]
        pod.held -= requests.prompt[i] + answer
        service.done += 1
        fleet.generated[i] = answer
        fleet.token[i] = 0.0
        if answer > 1:
            each = (pod.clock - fleet.began[i]) / (answer - 1)
            fleet.token[i] = each
            service.missed += each > fact.token_seconds and fleet.first[i] <= fact.first_seconds
            service.slack = min(service.slack, each - fact.iteration - fact.sequence)
            b = 0
            while b < len(_TOKEN) and each > _TOKEN[b]:
                b += 1
            fleet.token_seen[n, s, b] += 1.0
    pod.running, pod.finish = left, finish
