"""Variables of the token level: replicas with their batches, queues, and outcomes of requests."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float, Int
from rlscaler_rl.simulation.tokens.services import Requests, Services

EMPTY, STARTING, READY, DRAINING = range(4)
"""Phases of a replica."""

IDLE, ANSWERING, READING = range(3)
"""Work of a replica: none; iterations in which only answers go on; one iteration that also processes prompts."""

NEVER = 1e18
NOBODY = -1
RETRIES = 4096
"""Clients that wait to try again, of one service; a power of 2. Any more of them give up for good."""

FIRST_BUCKETS = np.array(
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560]
)
"""Bounds in seconds of vLLM's histogram of the time to the first token."""

TOKEN_BUCKETS = np.array(
    [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
)
"""The same of the time per output token."""

POD = np.dtype(
    [
        ("phase", "i8"),
        ("number", "i8"),  # pods of the service created before
        ("created", "f8"),
        ("ready_at", "f8"),
        ("drain_until", "f8"),
        ("work", "i8"),  # IDLE, ANSWERING or READING
        ("clock", "f8"),  # end of the last iteration that is over
        ("due", "f8"),  # end of the iteration or stretch of iterations under way
        ("stretch", "i8"),  # iterations left of the stretch under way
        ("step", "i8"),  # iterations ever
        ("finish", "i8"),  # step at which the next answer is complete
        ("held", "i8"),  # tokens in the KV cache
        ("running", "i8"),  # sequences whose answers go on
        ("joining", "i8"),  # sequences whose prompt is processed when the iteration is over
        ("partial", "i8"),  # request whose prompt is processed in part, or NOBODY
        ("left", "i8"),  # tokens of it that are left
        ("chunk", "i8"),  # tokens of prompts in the iteration under way
        ("head", "i8"),  # first and last request of the queue, or NOBODY
        ("tail", "i8"),
        ("waiting", "i8"),
        ("served", "f8"),  # prompts ever processed
        ("routed", "f8"),  # requests, tokens of prompts and of answers that all pods of the slot have had so far
        ("prompt_done", "f8"),
        ("answer_done", "f8"),
    ]
)

SERVICE = np.dtype(
    [
        ("time", "f8"),
        ("next", "i8"),  # position of the next request
        ("retry_first", "i8"),
        ("retry_last", "i8"),
        ("next_ready", "f8"),  # when the next replica will be ready
        ("alive", "i8"),  # entries of Fleet.alive
        ("turn", "i8"),
        ("created", "i8"),
        ("target", "i8"),
        ("arrived", "f8"),  # requests, each counted once
        ("attempts", "f8"),
        ("done", "f8"),
        ("lost", "f8"),  # whose clients gave up for good
        ("missed", "f8"),  # known to be late: at the late first token, at the end of a slow answer, or when lost
        ("prompt_in", "f8"),  # tokens of all attempts
        ("answer_in", "f8"),
        ("prompt_done", "f8"),  # tokens of prompts that were processed once
        ("answer_done", "f8"),  # tokens of answers
        ("prompt_lost", "f8"),  # tokens of attempts that ended before them
        ("answer_lost", "f8"),
        ("computed", "f8"),  # tokens of prompts processed, without cached ones, with those again
        ("preempted", "f8"),
        ("iterations", "f8"),
        ("sequence_steps", "f8"),  # sum over iterations of the sequences in the batch
        ("held_steps", "f8"),  # of the tokens in the KV cache
        ("busy", "f8"),  # replica-seconds in iterations
        ("billed", "f8"),  # replica-seconds of pods that are gone
        ("started", "f8"),  # replica-seconds of their cold starts
        ("fullest", "f8"),  # highest share of a KV cache ever held
        ("slack", "f8"),  # least seconds above its physical floor that any request took
    ]
)

FACT = np.dtype(
    [(name, "i8" if field.type == "Int" else "f8") for name, field in Services.__dataclass_fields__.items()]
)


class Fleet(NamedTuple):
    """All variables of N services with at most S pods each of at most K sequences, and of M requests."""

    service: NDArray[Any]  # (N,) SERVICE
    pod: NDArray[Any]  # (N, S) POD
    alive: Int  # (N, S) slots of the pods that are there
    run: Int  # (N, S, K) request of each sequence of the batch, in the order in which they joined
    end: NDArray[np.int64]  # (N, S, K) step at which its answer is complete
    retry_at: Float  # (N, RETRIES) ring, in order
    retry: NDArray[np.int64]  # (N, RETRIES)
    first_seen: Float  # (N, S, FIRST_BUCKETS + 1) first tokens of a slot by time, each counted in one bucket
    token_seen: Float  # (N, S, TOKEN_BUCKETS + 1) answers by time per token
    first: Float  # (M,) seconds from arrival to the first token; NaN = none yet
    token: Float  # (M,) seconds per output token of a complete answer; NaN = none
    began: Float  # (M,) moment of the first token
    attempted: Float  # (M,) moment of the present attempt
    generated: Int  # (M,) tokens of the answer so far, for a request that runs no more
    attempts: Int  # (M,)
    follower: NDArray[np.int64]  # (M,) the next request of its queue


def facts_of(services: Services) -> NDArray[Any]:
    """(N,) FACT of the services."""
    facts = np.zeros(len(services), FACT)
    for name in FACT.names or ():
        facts[name] = getattr(services, name)
    return facts


def begin(services: Services, requests: Requests) -> Fleet:
    """Variables at the begin: the initial replicas are ready and idle."""
    n, slots = len(services), 2 * int(services.max_replicas.max()) + 8
    total, batch = int(requests.first[-1]), int(services.sequences.max()) + 1
    fleet = Fleet(
        service=np.zeros(n, SERVICE),
        pod=np.zeros((n, slots), POD),
        alive=np.zeros((n, slots), np.int32),
        run=np.zeros((n, slots, batch), np.int32),
        end=np.zeros((n, slots, batch), np.int64),
        retry_at=np.zeros((n, RETRIES)),
        retry=np.zeros((n, RETRIES), np.int64),
        first_seen=np.zeros((n, slots, len(FIRST_BUCKETS) + 1)),
        token_seen=np.zeros((n, slots, len(TOKEN_BUCKETS) + 1)),
        first=np.full(total, np.nan),
        token=np.full(total, np.nan),
        began=np.zeros(total),
        attempted=np.zeros(total),
        generated=np.zeros(total, np.int32),
        attempts=np.zeros(total, np.int32),
        follower=np.full(total, NOBODY, np.int64),
    )
    fleet.service["next"] = requests.first[:-1]
    fleet.service["next_ready"] = NEVER
    fleet.service["slack"] = np.inf
    fleet.service["created"] = fleet.service["alive"] = fleet.service["target"] = services.initial
    fleet.alive[:] = np.arange(slots)
    there = np.arange(slots) < services.initial[:, None]
    fleet.pod["phase"] = np.where(there, READY, EMPTY)
    fleet.pod["number"] = np.arange(slots)
    fleet.pod["due"] = NEVER
    fleet.pod["finish"] = int(NEVER)
    for name in ("partial", "head", "tail"):
        fleet.pod[name] = NOBODY
    # Replicas that are there already are warm.
    fleet.pod["served"] = np.where(there, 1e9, 0.0)
    return fleet
