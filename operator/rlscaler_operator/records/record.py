"""One decision as a line of the audit log: its inputs, which allow a replay, its result and the writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from rlscaler_core.decision.actor import ActorLike
from rlscaler_core.decision.batch import Entry, Outcome
from rlscaler_core.decision.belief import believed
from rlscaler_core.decision.guards import STAGES
from rlscaler_core.decision.headroom import above
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.throughput import follows
from rlscaler_core.decision.types import POOLS, Decision, SignalState, observations
from rlscaler_operator.actuation.apply import Applied
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.rows import Json, decode_params, decode_samples, decode_state, encode, encode_state
from rlscaler_operator.records.rows import plain as exact
from rlscaler_operator.state.error_budget import late_price, left
from rlscaler_operator.state.status import PLACEMENTS, flag_names

SCHEMA = "rlscaler.io/decision/v2"

RECORDED = {"params", "state", "samples", "kind", "actor", "generation"}
"""Fields of `Entry` in a record: all of them."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The policy that a decision is about."""

    namespace: str
    name: str
    uid: str
    generation: int
    mode: str
    promotion: str | None = None
    """State in `status.promotion`; None where the policy has none."""


def line(
    decision_id: str,
    time: float,
    subject: Subject,
    outcome: Outcome,
    unknown_required: Sequence[str],
    conflict: str | None,
    applied: Applied | None,
    *,
    finished: bool = True,
) -> Json:
    """Return the record of an outcome with a decision; `time` is in Unix seconds.

    `applied` None means that there was nothing to write. Where the writes are not `finished`, it is not known which
    took place, and `applied` is null in the record.
    """
    entry = outcome.entry
    assert outcome.decision is not None
    return {
        "schema": SCHEMA,
        "decision_id": decision_id,
        "time": time,
        "kind": entry.kind,
        **{field.name: getattr(subject, field.name) for field in fields(subject)},
        "runtime": runtime(),
        "actor": describe(entry.actor),
        "params": encode(entry.params),
        "state": encode_state(entry.state),
        "samples": encode(entry.samples),
        "observation": observed(outcome),
        "capacity": by_pool(believed(entry.params, outcome.state).requests_per_second[0]),
        "headroom": headroom(outcome),
        "error_budget": error_budget(outcome),
        "grant": outcome.granted or None,
        "sharing": outcome.sharing or None,
        "unknown_required": list(unknown_required),
        **result(outcome, outcome.decision),
        "conflict": conflict,
        "applied": (applied is not None and applied.complete) if finished else None,
        "writes": {pool: write.outcome for pool, write in applied.writes.items()} if applied else {},
        "seconds": seconds(outcome, applied),
    }


def result(outcome: Outcome, decision: Decision) -> Json:
    """Return the part of a record that a replay has to reproduce."""
    ran = outcome.entry.kind == "action" and decision.action[0, 2] >= 0
    return {
        "probabilities": exact(decision.probabilities[0]) if ran else None,
        "action": exact(decision.action[0]) if ran else None,
        "base": by_pool(decision.base[0]),
        "guards": guards_record(decision.base[0], decision.trail[0], without=_idle_guards(outcome)),
        "flags": flag_names(int(decision.flags[0])),
        "outside_envelope": outcome.outside,
        "desired": by_pool(decision.desired[0]),
        "placement": PLACEMENTS[int(decision.placement[0])],
        "weights": by_pool(decision.weights[0]),
    }


def headroom(outcome: Outcome) -> Json | None:
    """Return by pool the headroom in percent and since when; None for an actor that moves none."""
    pools = above(outcome.state)
    return None if pools is None else {pool: value._asdict() for pool, value in pools.items()}


def error_budget(outcome: Outcome) -> Json:
    """Return the share of the error budget that is left, and the price of one percent of late requests in replicas.

    Both are inputs of the decision; null where the error budget is unknown, and for an actor without such a price.
    """
    params, state = outcome.entry.params, outcome.state
    share = left(params, state, outcome.entry.samples, float(params.objective[0]))
    return {
        "left": exact(np.float64(share)),
        "late_price": exact(np.float64(late_price(params, state, outcome.entry.actor))),
    }


def entry_of(record: Json, find: Callable[[Json], ActorLike | None]) -> Entry:
    """Return the entry of a record for `decide_all`; `find` returns the actor of a description by `describe`.

    A sensing tick between two actions needs no actor. Raises RecordError, as `find` may.
    """
    if record.get("schema") != SCHEMA:
        raise RecordError(f"schema is {record.get('schema')!r}, not {SCHEMA}: replay it with the release that wrote it")
    for name, kind in (("params", dict), ("state", dict), ("samples", dict), ("kind", str), ("generation", int)):
        if not isinstance(record.get(name), kind):
            raise RecordError(f"{name} is missing or malformed")
    return Entry(
        decode_params(record["params"]),
        decode_state(record["state"]),
        decode_samples(record["samples"]),
        record["kind"],
        find(record.get("actor") or {}) if record["kind"] == "action" else None,
        record["generation"],
    )


def describe(actor: ActorLike | None) -> dict[str, str]:
    """Return name, contract and digests (of the network, of the manifest) of an actor; empty where there was none."""
    if actor is None:
        return {}
    manifest = actor.manifest
    return {
        "name": manifest.name,
        "digest": manifest.digest,
        "contract": manifest.contract_version,
        "manifest": manifest_digest(manifest),
    }


def manifest_digest(manifest: Manifest) -> str:
    """Return the sha256 of a manifest without its description of the training."""
    # The network's digest does not cover the manifest. Defaults are left out, so that a field that a later release adds
    # changes no digest.
    content = manifest.model_dump_json(exclude={"training"}, exclude_defaults=True)
    return hashlib.sha256(content.encode()).hexdigest()


@cache
def runtime() -> dict[str, str]:
    """Return the versions of the libraries that a decision may depend on."""
    return {name: version(name) for name in ("rlscaler", "numpy", "onnxruntime")}


def seconds(outcome: Outcome, applied: Applied | None) -> dict[str, float]:
    """Return the seconds of each stage; for stages of a batch those of the whole batch."""
    writes = {f"write_{pool}": write.seconds for pool, write in applied.writes.items()} if applied else {}
    stages = {**outcome.seconds, **writes}
    return {name: round(took, 6) for name, took in stages.items() if took is not None}


def observed(outcome: Outcome) -> Json | None:
    """Return the observed numbers with state and age, by name; None at a tick between two actions."""
    observation = outcome.observation
    if observation is None:
        return None
    return {
        name: {
            "value": exact(observation.values[0, i]),
            "fed": exact(observation.fed[0, i]),
            "state": SignalState(int(observation.status[0, i])).name,
            "age_seconds": exact(observation.age_seconds[0, i]),
        }
        for i, name in enumerate(observations(outcome.entry.params))
    }


def guards_record(base: Any, trail: Any, *, without: Collection[str] = ()) -> list[Json]:
    """Return the replicas before and after each stage of the shield, except the stages `without`."""
    before = by_pool(base)
    steps = []
    for name, after_pools in zip(STAGES, trail, strict=True):
        if name in without:
            continue
        after = by_pool(after_pools)
        steps.append({"guard": name, "before": before, "after": after})
        before = after
    return steps


def _idle_guards(outcome: Outcome) -> set[str]:
    """Return the guards that cannot act on a policy, because it has no RLScalingBudget, no stream or no throughput."""
    # They are left out of the record, which is then the same as that of a release without these guards.
    idle = {
        "grant": not (outcome.entry.samples.granted_replicas >= 0).any(),
        "partitions": not outcome.entry.params.stream[0],
        "throughput": not follows(outcome.entry.params, outcome.entry.state, outcome.entry.samples)[0],
    }
    return {name for name, nothing in idle.items() if nothing}


def by_pool(values: Any) -> Json:
    return {pool: exact(values[i]) for i, pool in enumerate(POOLS)}
