"""What is remembered about resizes that did not come to an end: a pause for each, and what is said of it. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from rlscaler_operator.state.backoff import GrowingBackoff
from rlscaler_operator.state.findings import Problem

FIRST_SECONDS = 60.0
"""The first pause, which the second failure begins; the first one is followed by another attempt."""


@dataclass(slots=True)
class Failure:
    """Something that keeps coming back."""

    problem: Problem
    backoff: GrowingBackoff = field(default_factory=GrowingBackoff)


@dataclass(slots=True)
class Failures:
    """The failures of one pool's resizes. Times are in seconds by a clock that does not go backwards."""

    wish: str = ""
    """The size that failed, as text, since NaN is not equal to itself."""
    refused: Failure | None = None
    """What the API server last said against a patch: the other pods of the pool would hear the same."""
    taken_back: dict[str, Failure] = field(default_factory=dict)
    """By pod, what its kubelet did not do."""

    def begin(self, wish: str) -> None:
        """Forget everything where another size is wished than before."""
        if wish != self.wish:
            self.wish, self.refused, self.taken_back = wish, None, {}

    def refuse(self, problem: Problem, now: float) -> None:
        """Note that the API server has refused a patch."""
        self.refused = Failure(problem, self.refused.backoff if self.refused else GrowingBackoff())
        self.refused.backoff.again(now, FIRST_SECONDS)

    def take_back(self, pod: str, problem: Problem, now: float) -> None:
        """Note that a pod has got back the size that it runs with."""
        before = self.taken_back.get(pod)
        failure = Failure(problem, before.backoff if before else GrowingBackoff())
        failure.backoff.again(now, FIRST_SECONDS)
        self.taken_back[pod] = failure

    def paused(self, now: float) -> bool:
        """Return True while no pod of the pool is tried."""
        return self.refused is not None and self.refused.backoff.waits(now)

    def paused_pods(self, now: float) -> set[str]:
        """Return the pods that are not tried at the moment."""
        return {pod for pod, failure in self.taken_back.items() if failure.backoff.waits(now)}

    def keep(self, unsettled: Collection[str]) -> None:
        """Forget the pods that are not among these: they have gone, or have the size that is wished."""
        self.taken_back = {pod: one for pod, one in self.taken_back.items() if pod in unsettled}

    def problems(self) -> list[Problem]:
        """Return what keeps the pool from the size that is wished; one for each reason."""
        failures = [*([self.refused] if self.refused else []), *self.taken_back.values()]
        return list({failure.problem.reason: failure.problem for failure in failures}.values())
