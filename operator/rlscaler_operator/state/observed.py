"""A policy's object as the API server showed it last, and the facts that follow from its spec."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlscaler_core.api import InvalidPolicy, RLScalingPolicy, parse
from rlscaler_core.decision.types import POOLS
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.kinds import is_other
from rlscaler_operator.sensing.subject import Subject
from rlscaler_operator.state.operators import OperatorClaim
from rlscaler_operator.state.ownership import Claim

log = logging.getLogger("rlscaler.observed")

WEIGHTS_ANNOTATION = "rlscaler.io/traffic-weights"
"""The annotation for traffic weights without an HTTPRoute; a report does not depend on it."""


class SpecFacts(NamedTuple):
    """Facts that follow from a spec alone, and are needed several times a tick."""

    deployments: tuple[str | None, str | None]
    """References to the GPU and the CPU target; None for a pool that the spec does not have."""
    targets: tuple[tuple[str, Key], ...]
    """(pool, (namespace, target)) of the pools that the spec has."""
    subject: Subject
    """The subject of the queries."""
    learns: bool
    """Whether the spec leaves anything to be learned."""
    claim: Claim
    backends: tuple[Key, tuple[str, str]] | None
    """((namespace, HTTPRoute), (GPU Service, CPU Service)); None without a route or with one target only."""


@dataclass(slots=True)
class ObservedObject:
    """The object of one policy.

    The registry writes it by `read`. The operator's own writes to the object are noted by `wrote_finalizers`,
    `wrote_weights` and `wrote_new_pods`, before the watch shows them.
    """

    latest: Mapping[str, Any] = field(default_factory=dict)
    """The object as last seen, without managedFields: on taking over, the status of another operator counts."""
    generation: int = -1
    """-1 before the first `read`."""
    annotations: dict[str, str] = field(default_factory=dict)
    finalizers: list[str] = field(default_factory=list)
    deleting: bool = False
    parsed: RLScalingPolicy | None = None
    invalid: str = ""
    """Why the spec cannot be used; empty where it can."""
    facts: SpecFacts | None = None
    """None where the spec cannot be used."""
    claim: OperatorClaim = field(default_factory=OperatorClaim)
    """The operator that acts, by the status."""
    revision: int = 0
    """Grows with every change that a report depends on."""

    def read(self, body: Mapping[str, Any]) -> None:
        """Take in the object as the API server shows it now."""
        metadata = body["metadata"]
        before = self._reported()
        if self.generation != metadata.get("generation", 0):
            self.generation = metadata.get("generation", 0)
            try:
                self.parsed, self.invalid = parse(body), ""
                self.facts = _facts(self.parsed, metadata)
            except InvalidPolicy as error:
                self.parsed, self.facts, self.invalid = None, None, str(error)
            except Exception as error:
                # An object that no rule of the schema refuses and that cannot be read all the same.
                log.exception("%s/%s cannot be read", metadata.get("namespace", ""), metadata["name"])
                self.parsed, self.facts = None, None
                self.invalid = f"the object cannot be read: {error!r}; correct the field that the error names"
        self.latest = {name: body[name] for name in body if name != "metadata"} | {
            "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}
        }
        self.annotations = dict(metadata.get("annotations") or {})
        self.finalizers = list(metadata.get("finalizers") or ())
        self.deleting = "deletionTimestamp" in metadata
        self.claim = OperatorClaim.of(body.get("status"))
        self.revision += before != self._reported()

    def wrote_finalizers(self, finalizers: list[str]) -> None:
        self.revision += finalizers != self.finalizers
        self.finalizers = finalizers

    @property
    def new_pods(self) -> dict[str, Any]:
        """`status.newPods`: the sizes that new pods begin with, by pool."""
        return (self.latest.get("status") or {}).get("newPods") or {}

    def wrote_new_pods(self, answer: Mapping[str, Any]) -> None:
        """`answer` is the object as the write of `status.newPods` left it."""
        written = (answer.get("status") or {}).get("newPods") or {}
        self.latest = {**self.latest, "status": {**(self.latest.get("status") or {}), "newPods": written}}

    def wrote_weights(self, text: str) -> None:
        self.annotations[WEIGHTS_ANNOTATION] = text

    def _reported(self) -> tuple[object, ...]:
        """Return the parts that a report depends on."""
        annotations = {name: text for name, text in self.annotations.items() if name != WEIGHTS_ANNOTATION}
        return self.generation, annotations, self.finalizers, self.claim.asked


def _facts(parsed: RLScalingPolicy, metadata: Mapping[str, Any]) -> SpecFacts:
    spec, namespace = parsed.spec, metadata.get("namespace", "")
    gpu, cpu = spec.targets.gpu, spec.targets.cpu
    names = (gpu.reference if gpu else None, cpu.reference if cpu else None)
    targets = [target for target in (gpu, cpu) if target is not None]
    pools = [pool for pool in POOLS if spec.targets.pool(pool) is not None]
    unmeasured = any(spec.per_replica(pool) is None for pool in pools)
    route, services = spec.placement.http_route, (spec.backend("gpu"), spec.backend("cpu"))
    token_ms = spec.slo.time_per_output_token_milliseconds
    subject = Subject(
        namespace,
        parsed.service,
        (gpu.object_name if gpu else None, cpu.object_name if cpu else None),
        spec.slo.percentile,
        tuple(sorted(spec.metrics.queries.items())),
        spec.metrics.preset or "",
        spec.metrics.front_door or "",
        services,
        frozenset(target.object_name for target in targets if is_other(target.reference)),
        spec.capacity.unit,
        spec.slo.signal,
        (spec.capacity.token_weights.prompt, spec.capacity.token_weights.answer),
        tuple(
            (target.object_name, target.resources.container or "") for target in targets if target.resources is not None
        ),
        None if token_ms is None else (float(spec.slo.latency_milliseconds), float(token_ms)),
    )
    there = tuple((pool, (namespace, name)) for pool, name in zip(POOLS, names, strict=True) if name is not None)
    learns = unmeasured or any(target.cold_start_seconds is None for target in targets)
    created, deployments = metadata.get("creationTimestamp", ""), tuple(name for name in names if name)
    claim = Claim(created, namespace, metadata["name"], deployments)
    backends = None
    if route is not None and services[0] is not None and services[1] is not None:
        backends = (namespace, route.name), (services[0], services[1])
    return SpecFacts(names, there, subject, learns, claim, backends)
