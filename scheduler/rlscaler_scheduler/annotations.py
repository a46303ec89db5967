"""What a pod, or its namespace, says about its placement: policy and latency limits."""

from __future__ import annotations

import math
from typing import NamedTuple

from rlscaler_core.placement.policies import Policy
from rlscaler_scheduler.objects import Json, number

POLICY = "rlscaler.io/scoring-policy"
SOFT = ("rlscaler.io/latency-soft-ms", "latencySoftConstraint")
HARD = ("rlscaler.io/latency-hard-ms", "latencyHardConstraint")
"""Annotations in milliseconds; the second names are those of the thesis."""


class Wishes(NamedTuple):
    """What is asked for. NaN = no limit."""

    policy: Policy
    soft_ms: float
    hard_ms: float
    problems: tuple[str, ...]
    """Annotations that are ignored, each with what acts instead."""


def wishes(pod: Json, namespace: Json, default: Policy) -> Wishes:
    """Read the annotations of a pod and, for what it lacks, of its namespace."""
    problems: list[str] = []
    policy = _policy(pod.get(POLICY) or namespace.get(POLICY), default, problems)
    soft = _limit(pod, namespace, SOFT, problems)
    hard = _limit(pod, namespace, HARD, problems)
    if soft > hard:
        problems.append(
            f"{SOFT[0]} {soft:g} is above {HARD[0]} {hard:g}: the hard limit alone acts; lower the soft one"
        )
        soft = math.nan
    return Wishes(policy, soft, hard, tuple(problems))


def _policy(text: str | None, default: Policy, problems: list[str]) -> Policy:
    if text is None:
        return default
    try:
        return Policy(text)
    except ValueError:
        problems.append(f"{POLICY} {text!r} is none of {', '.join(Policy)}: {default} acts; correct it")
        return default


def _limit(pod: Json, namespace: Json, names: tuple[str, ...], problems: list[str]) -> float:
    text = next((found[name] for found in (pod, namespace) for name in names if name in found), None)
    value = number(text)
    if text is not None and math.isnan(value):
        problems.append(f"{names[0]} {text!r} is no number of milliseconds: there is no such limit; write one like 20")
    return value
