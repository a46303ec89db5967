"""The ledger of token services: counters, and the invariants without which their figures are void."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation.ledger import at_most, equal, holds
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.state import DRAINING, NOBODY, READY, STARTING


def left(level: TokenLevel) -> tuple[Float, Float, Float]:
    """Attempts in the system, and tokens of prompts and of answers that are left of them, (N,) each."""
    fleet, requests = level.fleet, level.requests
    attempts, prompts, answers = (np.zeros(len(level.services)) for _ in range(3))
    for n, service in enumerate(fleet.service):
        for s in fleet.alive[n, : service["alive"]]:
            pod = fleet.pod[n, s]
            whole = []
            for k in range(pod["running"] + pod["joining"]):
                i = fleet.run[n, s, k]
                if k >= pod["running"]:
                    whole.append(i)
                    continue
                attempts[n] += 1
                answers[n] += fleet.end[n, s, k] - pod["step"]
            if pod["partial"] != NOBODY:
                whole.append(pod["partial"])
            i = pod["head"]
            while i != NOBODY:
                whole.append(i)
                i = fleet.follower[i]
            for i in whole:
                attempts[n] += 1
                prompts[n] += requests.prompt[i] if fleet.generated[i] == 0 else 0
                answers[n] += requests.answer[i] - fleet.generated[i]
    return attempts, prompts, answers


def billed(level: TokenLevel) -> Float:
    """(N,) replica-seconds of all pods so far, also while they start or drain."""
    return _seconds(level, "billed", lambda pod, now: now - pod["created"])


def started(level: TokenLevel) -> Float:
    """(N,) replica-seconds of cold starts so far."""
    return _seconds(
        level,
        "started",
        lambda pod, now: np.where(pod["phase"] == STARTING, now, pod["ready_at"]) - pod["created"],
    )


def _seconds(level: TokenLevel, gone: str, of: Any) -> Float:
    pod, service = level.fleet.pod, level.fleet.service
    there = (pod["phase"] == STARTING) | (pod["phase"] == READY) | (pod["phase"] == DRAINING)
    return np.asarray(service[gone] + np.where(there, of(pod, service["time"][:, None]), 0.0).sum(axis=1), np.float64)


def check(level: TokenLevel) -> NDArray[Any]:
    """The counters (N,), or LedgerError naming the first broken invariant and service."""
    fleet, requests, facts = level.fleet, level.requests, level.facts
    service = fleet.service
    attempts, prompts, answers = left(level)
    bounds = requests.first
    time = service["time"]
    due = [np.searchsorted(requests.arrived[a:b], t) for a, b, t in zip(bounds[:-1], bounds[1:], time, strict=True)]
    equal("requests in = those that arrived", service["arrived"], np.array(due, np.float64))
    retrying = (service["retry_last"] - service["retry_first"]).astype(np.float64)
    known = service["done"] + service["lost"] + retrying + attempts
    equal("requests in = done + given up + trying again + left", service["arrived"], known)
    prompt = service["prompt_done"] + service["prompt_lost"] + prompts
    equal("prompt tokens in = processed + lost + left", service["prompt_in"], prompt)
    answer = service["answer_done"] + service["answer_lost"] + answers
    equal("answer tokens in = given + lost + left", service["answer_in"], answer)
    busy = facts["iteration"] * service["iterations"] + facts["sequence"] * service["sequence_steps"]
    busy += facts["prompt"] * service["computed"] + facts["held"] * service["held_steps"]
    equal("busy = a x iterations + b x sequences + c x prompts + d x held", service["busy"], busy)
    at_most("busy <= replica-seconds that were not cold starts", service["busy"], billed(level) - started(level))
    at_most("KV cache <= its limit", service["fullest"], np.ones(len(service)))
    slack = np.where(np.isfinite(service["slack"]), service["slack"], 0.0)
    holds("no token sooner than its iterations take", slack >= -1e-6, slack)
    counts = ((fleet.pod["phase"] == STARTING) | (fleet.pod["phase"] == READY)).sum(axis=1)
    equal("starting + ready = target", counts.astype(np.float64), service["target"].astype(np.float64))
    return service.copy()
