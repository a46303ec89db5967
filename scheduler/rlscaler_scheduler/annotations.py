"""Policy and latency limits of a pod: by its annotations, those of its namespace, or a NodeScoringPolicy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from rlscaler_core.api.node_scoring import NODE_SCORING_KIND, NodeScoringPolicy
from rlscaler_core.placement.policies import Policy
from rlscaler_scheduler.objects import Json, number

POLICY = "rlscaler.io/scoring-policy"
SOFT = ("rlscaler.io/latency-soft-ms", "latencySoftConstraint")
HARD = ("rlscaler.io/latency-hard-ms", "latencyHardConstraint")
"""Annotations in milliseconds; the second names are those of the thesis."""


OF_POD, OF_NAMESPACE, OF_SERVER = "annotation of the pod", "annotation of the namespace", "--policy of the server"
"""Sources of a wish, beside a NodeScoringPolicy."""


LONGEST_QUOTED = 60
"""Characters of a wrong annotation that are repeated; it may have 256 KiB, and an Event one."""


def quoted(text: str) -> str:
    """The text in quotes, or its beginning."""
    return repr(text) if len(text) <= LONGEST_QUOTED else f"{text[:LONGEST_QUOTED]!r}…"


class Wishes(NamedTuple):
    """Scoring policy and latency limits of a pod. NaN = no limit."""

    policy: Policy
    soft_ms: float
    hard_ms: float
    problems: tuple[str, ...]
    """Ignored annotations, each with the value that acts instead."""
    by: Mapping[str, str]
    """Source of `policy`, `latency_soft_ms` and `latency_hard_ms`; without an entry for a limit that is not set."""


def wishes(pod: Json, namespace: Json, default: Policy, scoring: NodeScoringPolicy | None = None) -> Wishes:
    """Read the annotations of a pod, then those of its namespace, then the NodeScoringPolicy that selects the pod; the
    first source of a value counts."""
    read = _Reader(pod, namespace, scoring)
    policy = read.policy(default)
    soft = read.limit("latency_soft_ms", SOFT)
    hard = read.limit("latency_hard_ms", HARD)
    if soft > hard:
        texts = (
            f"{SOFT[0]} {soft:g} ({read.by['latency_soft_ms']})",
            f"{HARD[0]} {hard:g} ({read.by['latency_hard_ms']})",
        )
        read.problems.append(f"{texts[0]} is above {texts[1]}: the hard limit alone acts; lower the soft one")
        soft = math.nan
    return Wishes(policy, soft, hard, tuple(read.problems), read.by)


class _Reader:
    """Finds each wish at the first source that has it, and notes that source and its faults."""

    def __init__(self, pod: Json, namespace: Json, scoring: NodeScoringPolicy | None) -> None:
        self._places = ((OF_POD, pod), (OF_NAMESPACE, namespace))
        self._stated = scoring.spec if scoring is not None else None
        self._object = f"{NODE_SCORING_KIND} {scoring.metadata.name}" if scoring is not None else ""
        self.problems: list[str] = []
        self.by: dict[str, str] = {}

    def policy(self, default: Policy) -> Policy:
        """The scoring policy. One that does not exist is as if it was not there, save for a problem."""
        if self._stated is not None and self._stated.policy is not None:
            default, self.by["policy"] = Policy(self._stated.policy), self._object
        else:
            self.by["policy"] = OF_SERVER
        who, text = self._annotation((POLICY,))
        if not text:
            return default
        try:
            scoring = Policy(text)
        except ValueError:
            self.problems.append(f"{POLICY} {quoted(text)} is none of {', '.join(Policy)}: {default} acts; correct it")
            return default
        self.by["policy"] = who
        return scoring

    def limit(self, what: str, names: tuple[str, ...]) -> float:
        """A latency in milliseconds. An annotation that is no number means that there is no limit."""
        who, text = self._annotation(names)
        if text is None:
            return self._stated_limit(what)
        value = number(text)
        if math.isnan(value):
            self.problems.append(
                f"{names[0]} {quoted(text)} is no number of milliseconds: there is no such limit; write one like 20"
            )
        else:
            self.by[what] = who
        return value

    def _stated_limit(self, what: str) -> float:
        """The latency that the object says, NaN where it says none."""
        if self._stated is None:
            return math.nan
        limits = {
            "latency_soft_ms": self._stated.latency_soft_constraint_milliseconds,
            "latency_hard_ms": self._stated.latency_hard_constraint_milliseconds,
        }
        limit = limits[what]
        if limit is None:
            return math.nan
        self.by[what] = self._object
        return limit

    def _annotation(self, names: tuple[str, ...]) -> tuple[str, str | None]:
        """Return the source of the first of these annotations, and its text; the text is None where neither pod nor
        namespace has one."""
        places = ((who, place[name]) for who, place in self._places for name in names if name in place)
        return next(places, ("", None))
