"""NodeScoringPolicy: how nodes are scored, and how far they may be, for pods that do not say so themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from rlscaler_core.api.base import Model, Rule
from rlscaler_core.api.exceptions import InvalidNodeScoringError
from rlscaler_core.api.policy import Metadata, plain

NODE_SCORING_KIND = "NodeScoringPolicy"
NODE_SCORING_PLURAL = "nodescoringpolicies"

Milliseconds = Annotated[float, Field(ge=0, le=1_000_000)]
"""A round trip to the users."""

_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN_PART = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY = f"^({_DOMAIN_PART}([.]{_DOMAIN_PART})*/)?{_WORD}$"
_LONGEST_PREFIX = 253

LabelKey = Annotated[str, Field(max_length=317, pattern=_KEY)]
"""Name of a label as Kubernetes takes it, with its prefix."""

LabelValue = Annotated[str, Field(max_length=63, pattern=f"^({_WORD})?$")]
"""Value of a label as Kubernetes takes it."""


def _is_key(name: str) -> bool:
    """Return whether Kubernetes takes it as the name of a label."""
    return re.fullmatch(_KEY, name) is not None and name.find("/") <= _LONGEST_PREFIX


class Requirement(Model):
    """Requirement on one label."""

    key: LabelKey
    """Name of the label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """Relation of the label to `values`; `NotIn` holds without the label too."""
    values: list[LabelValue] = Field(default_factory=list, max_length=64)
    """Values for `In` and `NotIn`; none for the others."""

    rules = (
        Rule(
            cel="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            holds=lambda one: (one.operator in ("In", "NotIn")) == bool(one.values),
            message="In and NotIn need values, Exists and DoesNotExist take none: add or remove them",
            field="values",
        ),
        Rule(
            cel=f"self.key.indexOf('/') <= {_LONGEST_PREFIX}",
            holds=lambda one: one.key.find("/") <= _LONGEST_PREFIX,
            message=f"the prefix of a label has at most {_LONGEST_PREFIX} characters: shorten key",
            field="key",
        ),
    )

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels are as required."""
        if self.operator in ("Exists", "DoesNotExist"):
            return (self.key in labels) == (self.operator == "Exists")
        return (labels.get(self.key) in self.values) == (self.operator == "In")


class Selector(Model):
    """Labels that an object must have; an empty selector selects every object."""

    match_labels: dict[Annotated[str, Field(max_length=317)], LabelValue] = Field(default_factory=dict, max_length=16)
    """Labels and their values, all of which must be there."""
    match_expressions: list[Requirement] = Field(default_factory=list, max_length=16)
    """Further requirements, all of which must hold."""

    rules = (
        Rule(
            cel=(
                "!has(self.matchLabels) || self.matchLabels.all(name, "
                f"name.matches('{_KEY}') && name.indexOf('/') <= {_LONGEST_PREFIX})"
            ),
            holds=lambda selector: all(map(_is_key, selector.match_labels)),
            message="a name in matchLabels is none that a label can have: correct it, such as tier or example.com/tier",
            field="matchLabels",
        ),
    )

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        there = all(labels.get(name) == value for name, value in self.match_labels.items())
        return there and all(one.holds(labels) for one in self.match_expressions)


class NodeScoringSpec(Model):
    """Selected pods, and the scoring of nodes for them."""

    namespace_selector: Selector | None = None
    """Labels of the namespaces of the pods; default: all namespaces. Each namespace has its name in
    `kubernetes.io/metadata.name`."""
    pod_selector: Selector | None = None
    """Labels of the pods; default: all pods of the namespaces."""
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000, json_schema_extra={"format": "int32"})] = 0
    """Of several that select a pod the one with the highest acts, of equals the first by name."""
    policy: Literal["EE", "LB", "EL", "GPU"] | None = None
    """Aim of the scores: `EE` few nodes in use, `LB` equal load, `EL` near the users and then few nodes, `GPU` little
    fragmentation of GPUs; default: that of the server."""
    latency_soft_constraint_milliseconds: Milliseconds | None = None
    """`EL` prefers nodes below this latency; default: no such limit."""
    latency_hard_constraint_milliseconds: Milliseconds | None = None
    """Nodes that were measured above this latency are refused, whatever the policy; default: no such limit."""

    rules = (
        Rule(
            cel=(
                "has(self.policy) || has(self.latencySoftConstraintMilliseconds)"
                " || has(self.latencyHardConstraintMilliseconds)"
            ),
            holds=lambda spec: (
                spec.policy is not None
                or spec.latency_soft_constraint_milliseconds is not None
                or spec.latency_hard_constraint_milliseconds is not None
            ),
            message="it says nothing: set policy or a latency constraint",
            field="policy",
        ),
        Rule(
            cel=(
                "!has(self.latencySoftConstraintMilliseconds) || !has(self.latencyHardConstraintMilliseconds)"
                " || double(self.latencySoftConstraintMilliseconds) <= double(self.latencyHardConstraintMilliseconds)"
            ),
            holds=lambda spec: (
                spec.latency_soft_constraint_milliseconds is None
                or spec.latency_hard_constraint_milliseconds is None
                or spec.latency_soft_constraint_milliseconds <= spec.latency_hard_constraint_milliseconds
            ),
            message=(
                "latencySoftConstraintMilliseconds is above latencyHardConstraintMilliseconds: "
                "lower the soft one or raise the hard one"
            ),
            field="latencySoftConstraintMilliseconds",
        ),
    )

    def selects(self, namespace: Mapping[str, str], pod: Mapping[str, str]) -> bool:
        """Return whether a pod with the labels `pod`, in a namespace with the labels `namespace`, is selected."""
        pairs = ((self.namespace_selector, namespace), (self.pod_selector, pod))
        return all(selector is None or selector.selects(labels) for selector, labels in pairs)


class NodeScoringPolicy(Model):
    """Scoring of nodes for the pods that it selects, where neither the pod nor its namespace has an annotation."""

    api_version: Literal["rlscaler.io/v1alpha1"] = "rlscaler.io/v1alpha1"
    """Group and version of this representation of the object."""
    kind: Literal["NodeScoringPolicy"] = "NodeScoringPolicy"
    """Kind of the object."""
    metadata: Metadata = Metadata()
    """Standard object's metadata."""
    spec: NodeScoringSpec
    """Selected pods, and the scoring of nodes for them."""


def parse_node_scoring(body: Mapping[str, Any]) -> NodeScoringPolicy:
    """Parse an object as the API server returns it.

    Raises:
        InvalidNodeScoringError: with the path and the remedy of every wrong field.
    """
    try:
        return NodeScoringPolicy.model_validate(plain(body), by_alias=True, by_name=False)
    except ValidationError as error:
        texts = [f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()]
        raise InvalidNodeScoringError("; ".join(texts)) from error
