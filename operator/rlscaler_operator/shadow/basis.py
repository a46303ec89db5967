"""The basis of evidence: a digest for everything that a decision reads, by part, so that an edit of it can be named."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from rlscaler_operator.records.record import describe
from rlscaler_operator.state.policy import Policy

NO_PART = {"mode", "promotion", "restoreOnDelete", "policy", "bearerToken", "basic", "sasl", "tls"}
"""Fields of the spec, at any depth, that change no decision: whether it acts, and how to log in to Prometheus or Kafka,
but for the tenant, whose series are others. The model has a digest of its own."""

DIGITS = 8
"""Hexadecimal digits of the digest of one part."""


def basis_of(policy: Policy) -> str:
    """Return the basis as `part:digest`, separated by spaces; without the model where there is no actor."""
    # Defaults are left out, so that a field that a later release adds changes no basis. A field is in unless it is
    # named above: a new one that nobody thought of begins the evidence anew rather than let it count for too much.
    spec = _decides(policy.spec.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    actor = describe(policy.decision.actor)
    parts = {"service": policy.subject.service, **spec} | ({"model": actor} if actor else {})
    return " ".join(f"{name}:{_digest(part)}" for name, part in sorted(parts.items()))


def edited(before: str, now: str) -> list[str]:
    """Return the names of the parts in which two bases differ."""
    return sorted({part.partition(":")[0] for part in {*before.split()} ^ {*now.split()} if ":" in part})


def _decides(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields without those in `NO_PART`, and without parts that are empty then."""
    left = {
        name: _decides(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if name not in NO_PART
    }
    return {name: value for name, value in left.items() if value not in ({}, [], None)}


def _digest(part: object) -> str:
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:DIGITS]


def with_model(basis: str, before: str) -> str:
    """Return `basis` with the model of the basis `before`."""
    model = [part for part in before.split() if part.startswith("model:")]
    return " ".join(sorted([*basis.split(), *model]))


def former_basis(policy: Policy) -> str:
    """Return the basis as earlier releases wrote it, for evidence that was collected under one."""
    spec = policy.spec
    named = (*describe(policy.decision.actor).values(), *map(str, policy.deployments), policy.subject.service)
    otherwise = [name for name in (spec.capacity.unit, spec.slo.signal) if name not in ("requests", "endToEnd")]
    text = "\n".join((*named, str(spec.slo.latency_milliseconds), *otherwise))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
