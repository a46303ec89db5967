"""Demand of model servers in replicas, as llm-d's workload-variant autoscaler 0.9 works it out from vLLM's metrics.

The capacity of a replica is in tokens of its KV cache: `KV_SHARE` of the cache, or less where requests were seen to
wait for a replica that held less, or, until then, by the batch that its settings allow.
Source: https://github.com/llm-d/llm-d-workload-variant-autoscaler, internal/engines/analyzers/saturation_v2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.types import Float
from rlscaler_rl.simulation.tokens.services import Services
from rlscaler_rl.simulation.tokens.state import READY

KV_SHARE = 0.8
WAITING = 5
"""Requests that wait for a replica that counts as full."""

ANSWERS = (100.0, 500.0)
"""Mean tokens of an answer between which capacities are remembered apart."""

REMEMBERED = 10
"""Capacities whose mean is taken."""


class Saturation:
    """Capacities at which the replicas of N services were full."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._capacities = np.full((len(services), len(ANSWERS) + 1, REMEMBERED), np.nan)
        self._count = np.zeros((len(services), len(ANSWERS) + 1), np.int64)

    def demand(self, pod: NDArray[Any], prompt: Float, answer: Float) -> Float:
        """Return the demand (N,) in replicas, and remember the capacities of full replicas.

        NaN without a ready replica.

        :param pod: replicas (N, S), as in `Fleet`, with the most of a minute in `held` and `waiting`.
        :param prompt: mean tokens (N,) of a prompt; NaN: not known.
        :param answer: mean tokens (N,) of an answer; NaN: not known.
        """
        services, ready = self.services, pod["phase"] == READY
        held, waiting = pod["held"].astype(np.float64), pod["waiting"]
        full = ready & (waiting >= WAITING) & (held > 0)
        cache = KV_SHARE * services.kv_tokens.astype(np.float64)
        capacity = np.where(full, held, self._usual(prompt, answer, cache)[:, None])
        capacity = np.where(ready, np.minimum(capacity, cache[:, None]), np.nan)
        self._remember(held, full, answer)
        tokens = ((held + waiting * np.nan_to_num(prompt)[:, None]) * ready).sum(axis=1)
        there = ready.any(axis=1)
        each = np.nanmedian(np.where(there[:, None], capacity, 1.0), axis=1)
        return np.asarray(np.where(there, tokens / each, np.nan), np.float64)

    def _usual(self, prompt: Float, answer: Float, cache: Float) -> Float:
        """Return the capacity (N,) of a replica that is not full now."""
        batch = np.minimum(
            self.services.batched_tokens * answer / np.maximum(prompt + answer, 1.0), self.services.sequences
        )
        by_batch = np.where(answer > 0, batch * (prompt + answer / 2), np.nan)
        rows, kind = np.arange(len(answer)), _kind(answer)
        count = np.minimum(self._count[rows, kind], REMEMBERED)
        mean = np.nansum(self._capacities[rows, kind], axis=1) / np.maximum(count, 1)
        usual = np.where(count > 0, mean, by_batch)
        return np.where(usual > 0, usual, cache)

    def _remember(self, held: Float, full: NDArray[np.bool_], answer: Float) -> None:
        kind = _kind(answer)
        for row, slot in zip(*np.nonzero(full), strict=True):
            place = self._count[row, kind[row]] % REMEMBERED
            self._capacities[row, kind[row], place] = held[row, slot]
            self._count[row, kind[row]] += 1


def _kind(answer: Float) -> NDArray[np.int64]:
    """Return the place (N,) of answers so long among `ANSWERS`; unknown ones count as short."""
    return np.searchsorted(ANSWERS, np.nan_to_num(answer), side="right")
