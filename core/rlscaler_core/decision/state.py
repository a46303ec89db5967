"""What the decision function remembers between calls."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.types import EVENTS, OBSERVATIONS, RATE_HISTORY, Placement, State


def initial_state(n: int, stack_size: int, history: int = RATE_HISTORY) -> State:
    """N rows that remember nothing; `stack_size` is the k of the actor's manifest, `history` the rates kept."""
    none = (n, 2, EVENTS)
    return State(
        rate_time=np.full((n, history), np.nan),
        rate_value=np.full((n, history), np.nan),
        stack=np.zeros((n, stack_size, len(OBSERVATIONS)), np.float32),
        stacked=np.zeros(n, np.int32),
        unknown_intervals=np.zeros(n, np.int32),
        placement=np.full(n, Placement.BALANCED, np.int32),
        weights=np.full((n, 2), 500, np.int32),
        budget_kept=np.full(n, np.inf),
        floor_hold=np.zeros((n, 2), np.int32),
        event_time=np.full(none, np.nan),
        event_change=np.zeros(none, np.int32),
        recommendation_time=np.full(none, np.nan),
        recommendation=np.zeros(none, np.int32),
        write_time=np.full((n, 2), np.nan),
        write_base=np.zeros((n, 2), np.int32),
        write_desired=np.zeros((n, 2), np.int32),
    )
