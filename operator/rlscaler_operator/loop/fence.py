"""Fence around every policy: an error for one policy in the loop's own frame ends the work for no other policy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar

from rlscaler_operator.exceptions import FenceError
from rlscaler_operator.loop.background import Launch
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.sensing.halves import by_halves
from rlscaler_operator.state.policy import Policy

log = logging.getLogger("rlscaler.fence")

PAUSE_SECONDS = 1.0
"""Shortest pause of a policy after a failure; its breaker makes the pause longer."""

P = ParamSpec("P")
T = TypeVar("T")

Report = Callable[[Policy, Exception], Coroutine[Any, Any, None]]
"""Reports a failure as a condition of the policy, counts it, and lets the policy's breaker count it."""


class Fence:
    """Runs work for policies, whose failure is a condition of the policy at fault and touches no other."""

    def __init__(self, metrics: Metrics, launch: Launch, report: Report) -> None:
        self._metrics, self._launch, self._report = metrics, launch, report
        self._logged: dict[str, str] = {}
        """Last error of each work that belongs to no policy: a turn of the loop is over in a second or less."""

    def run(self, policy: Policy, doing: str, work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Run `work` for a policy; return False where it failed. `doing` completes "the operator could not"."""
        try:
            work(*args, **kwargs)
        except Exception as error:
            self.failed(policy, doing, error)
            return False
        return True

    async def for_all(
        self, policies: Sequence[Policy], doing: str, work: Callable[[Sequence[Policy]], T]
    ) -> tuple[T, Sequence[Policy]]:
        """Return the result of `work` for the policies that it does not fail for, and these policies.

        Raises the error where the policies fail only together.
        """

        async def of(some: Sequence[Policy]) -> T:
            return work(some)

        fine: list[Policy] = []
        parts = await by_halves(doing, policies, of)
        for some, result in parts:
            if not isinstance(result, Exception):
                fine += some
                continue
            for policy in some:
                self.failed(policy, doing, result)
        whole = parts[0][1]
        return (whole, fine) if len(parts) == 1 and not isinstance(whole, Exception) else (work(fine), fine)

    def without_policy(self, doing: str, work: Callable[[], object]) -> None:
        """Run work that belongs to no single policy; a failure is logged once and counted, and the loop goes on."""
        try:
            work()
        except Exception as error:
            self._metrics.loop_errors.inc()
            if self._logged.get(doing) != repr(error):
                log.exception("the operator could not %s", doing)
            self._logged[doing] = repr(error)
        else:
            self._logged.pop(doing, None)

    def failed(self, policy: Policy, doing: str, error: Exception) -> None:
        """Let a policy alone for a while, and report its failure in the background."""
        now = time.monotonic()
        if (schedule := policy.timing.schedule) is not None:
            # What is due now is skipped: it would be due again at the next turn, without a pause.
            schedule.done(schedule.due(now), now)
        policy.timing.breaker.until = max(policy.timing.breaker.until, now + PAUSE_SECONDS)
        failure = FenceError(
            f"the operator could not {doing}: {error!r}; correct the field or object that the error names, otherwise "
            "report it with the policy and the operator's log"
        )
        failure.__cause__ = error
        self._launch([policy], self._safely(policy, failure))

    async def _safely(self, policy: Policy, failure: FenceError) -> None:
        """Report a failure. One that cannot even be reported is logged, and is not reported again."""
        try:
            await self._report(policy, failure)
        except Exception:
            policy.timing.breaker.failed(time.monotonic())
            log.exception("%s/%s: %s; this could not be reported", *policy.key, failure)
