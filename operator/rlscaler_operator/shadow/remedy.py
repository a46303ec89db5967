"""What to do where the model of a comparison does not say what was measured. Pure."""

from __future__ import annotations

import numpy as np

from rlscaler_core.decision.types import POOLS, Params
from rlscaler_operator.shadow.calibration import tells_running
from rlscaler_operator.shadow.service_times import ServiceTimes
from rlscaler_operator.shadow.verdict import REMEDY
from rlscaler_operator.state.policy import Policy

LEAST_AT_ONCE = 0.5
"""Requests that a replica would work on at a time below which what it carries is taken for wrong."""


def remedy(policy: Policy, params: Params | None, times: ServiceTimes, slower: bool | None) -> str:
    """The first of what is known to be wrong, else the usual cause.

    `params` (one row) has what a replica carries, `times` how long it works on a request, and `slower` says whether the
    model was slower than the service where they differed last; each None or NaN where it is not known.
    """
    if policy.spec.slo.signal != "endToEnd":
        return (
            f"the model times whole requests, and no {policy.spec.slo.signal}: where it stays like this, "
            "spec.promotion.require: None lets the policy act without evidence"
        )
    if params is not None and policy.spec.capacity.unit == "requests":
        for number, pool in enumerate(POOLS):
            seconds, carries = float(times.seconds[number]), float(params.requests_per_second[0, number])
            if seconds * carries < LEAST_AT_ONCE:
                return (
                    f"a replica works on a request for {1000 * seconds:.3g} ms, so even one at a time it carries "
                    f"{1 / seconds:.3g} requests/s, and not {carries:.3g}: set "
                    f"spec.{policy.spec.per_replica_field(pool)} to what it carries under full load"
                )
    if slower is None:
        return REMEDY
    if slower:
        return f"the model is slower than the service, as if a replica carried more than it is said to: {REMEDY}"
    if not tells_running(policy.subject) and np.isnan(times.seconds).all():
        return (
            "the model is faster than the service, and works on one request at a time, since no series tells what runs "
            f"from what waits: where replicas work on several, name the server in spec.metrics.preset; else {REMEDY}"
        )
    return f"the model is faster than the service, as if a replica carried less than it is said to: {REMEDY}"
