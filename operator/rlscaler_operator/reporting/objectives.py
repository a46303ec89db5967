"""Count of late requests once a rate window, from the service's histogram: for the alerts, and the error budget."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.calibration import Histograms, histogram_of
from rlscaler_operator.state.policy import Policy

AT_ONCE = 100
"""Most services in one query: some 1,500 series."""


class Objectives:
    """Counts requests and late requests of each policy's service.

    Where no metrics are served, only services whose price of lateness follows the error budget are counted.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._served = settings.metrics_port is not None
        self.window_seconds, self._metrics = settings.window_seconds, metrics

    def due(self, policies: Sequence[Policy], now: float) -> list[Policy]:
        """Return the policies whose window is over, and begin a new one for them. `now` is a monotonic time."""
        due: list[Policy] = []
        for policy in policies:
            if not (self._served or policy.spec.slo.steers):
                continue
            if policy.late.asked_at is None:
                # Spread over the window: policies that were taken over together would be asked for together for ever.
                policy.late.asked_at = now - random.uniform(0, self.window_seconds)
            elif now - policy.late.asked_at >= self.window_seconds and len(due) < AT_ONCE:
                policy.late.asked_at = now
                due.append(policy)
        return due

    def count(self, policy: Policy, measured: Histograms) -> None:
        """Count the last window by the histograms: a request that arrives in it and is not answered in time is late.

        A window that is not measured is not counted.
        """
        histogram = histogram_of(measured, policy.subject)
        if histogram is None:
            return
        latency = policy.spec.slo.latency_milliseconds
        in_time = histogram.in_time(latency / 1000)
        if in_time is None:
            return
        # `in_time` has two values where the objective lies between two bounds of the histogram: their mean counts.
        # A request that arrives at the end of a window and is answered in time in the next one counts as late at first.
        # There one more is in time than arrived: the negative rest is carried until it is made up for.
        late = histogram.received - sum(in_time) / 2 + policy.late.carried
        policy.late.carried = min(0.0, late)
        # Where a queue stands for arrivals, one that empties shows fewer than none.
        received = max(0.0, histogram.received)
        policy.late.windows.append((received, max(0.0, late), latency))
        of = self._metrics.of(*policy.key)
        of.add(self._metrics.slo_requests, received)
        of.add(self._metrics.slo_late, max(0.0, late))
