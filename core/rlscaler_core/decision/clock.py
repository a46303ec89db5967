"""A clock that was set back between two samples: the remembered times move with it, so that every age stays true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rlscaler_core.decision.forecaster.learn import STEP_SECONDS
from rlscaler_core.decision.throughput import SINCE, TIME, UNTIL
from rlscaler_core.decision.types import Samples, State


def on_the_clock_of(samples: Samples, state: State) -> State:
    """Return `state` with its times in the rows that remember an arrival rate from after `samples.time`.

    They would otherwise not age until the clock has caught up: no rate would be fresh and no hold would end.
    A clock that runs forward changes nothing.
    """
    ahead = state.rate_time[:, -1] - samples.time
    back = np.where(ahead > STEP_SECONDS, ahead, 0.0)
    if not back.any():
        return state
    trial = state.trial.copy()
    trial[:, [SINCE, TIME, UNTIL]] -= back[:, None]
    return replace(
        state,
        rate_time=state.rate_time - back[:, None],
        peak_time=state.peak_time - back[:, None],
        event_time=state.event_time - back[:, None, None],
        recommendation_time=state.recommendation_time - back[:, None, None],
        write_time=state.write_time - back[:, None],
        counted_time=state.counted_time - back,
        trial=trial,
    )
