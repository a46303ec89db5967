"""NodeScoringPolicy: what is refused, what it selects, and that the schema says the same as the models."""

from __future__ import annotations

from typing import get_args

import jsonschema
import pytest

from rlscaler_core.api.exceptions import InvalidNodeScoringError
from rlscaler_core.api.node_scoring import NodeScoringSpec, parse_node_scoring
from rlscaler_core.placement.policies import Policy
from rlscaler_dev.generate.definition import NODE_SCORING

SOFT, HARD = "latencySoftConstraintMilliseconds", "latencyHardConstraintMilliseconds"


def body(**spec):
    return {
        "apiVersion": "rlscaler.io/v1alpha1",
        "kind": "NodeScoringPolicy",
        "metadata": {"name": "edge", "managedFields": []},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("spec", "named", "by_schema"),
    [
        ({}, "it says nothing: set policy or a latency constraint", False),
        ({"priority": 3}, "it says nothing", False),
        ({SOFT: 30, HARD: 20}, "lower the soft one or raise the hard one", False),
        (
            {"policy": "EE", "podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "In and NotIn need values",
            False,
        ),
        (
            {
                "policy": "EE",
                "podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
            },
            "Exists and DoesNotExist take none",
            False,
        ),
        ({"policy": "BEST"}, r"spec\.policy: Input should be 'EE', 'LB', 'EL' or 'GPU'", True),
        ({HARD: -1}, rf"spec\.{HARD}", True),
        ({HARD: "20"}, rf"spec\.{HARD}", True),
        ({"policy": "EE", "priority": 1.5}, r"spec\.priority", True),
        ({"policy": "EE", "podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "operator", True),
        ({"policy": "EE", "selector": {}}, r"spec\.selector", False),
    ],
)
def test_refused_by_the_name_of_the_field(spec, named, by_schema):
    with pytest.raises(InvalidNodeScoringError, match=named):
        parse_node_scoring(body(**spec))
    if by_schema:
        schema = NODE_SCORING.schema()["properties"]["spec"]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(spec, schema, cls=jsonschema.Draft4Validator)


UNREADABLE = [
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["a b"]}]}, "values"),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["-a"]}]}, "values"),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": [64 * "a"]}]}, "values"),
    *(
        ({"matchExpressions": [{"key": key, "operator": "Exists"}]}, "key")
        for key in ("bad key!", "", "/a", "a/", "a/b/c", "A.b/c", "a_b/c", "a..b/c", "a-", 64 * "a", f"{254 * 'a'}/b")
    ),
    ({"matchLabels": {"a": "a b"}}, "matchLabels"),
    *(({"matchLabels": {key: "a"}}, "matchLabels") for key in ("bad key!", "", "A.b/c", 64 * "a", f"{254 * 'a'}/b")),
    ({"matchLabels": {"a\n": "a"}}, "matchLabels"),
]
"""Selectors that kube-scheduler cannot read, and the field that is wrong."""


@pytest.mark.parametrize(("selector", "field"), UNREADABLE)
def test_labels_that_kubernetes_does_not_take_are_refused(selector, field):
    for name in ("podSelector", "namespaceSelector"):
        with pytest.raises(InvalidNodeScoringError, match=rf"spec\.{name}.*{field}"):
            parse_node_scoring(body(policy="LB", **{name: selector}))


@pytest.mark.parametrize(
    "key", ["a", "A_b.c-D", "example.com/A_1", 63 * "a", f"{'.'.join(4 * [62 * 'a'])}.a/{63 * 'b'}"]
)
@pytest.mark.parametrize("value", ["", "a", "A_b.c-9", 63 * "a"])
def test_labels_that_kubernetes_takes_are_taken(key, value):
    chosen = {"matchLabels": {key: value}, "matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    assert spec_of(podSelector=chosen).selects({}, {key: value})


def spec_of(**spec) -> NodeScoringSpec:
    return parse_node_scoring(body(policy="LB", **spec)).spec


def expression(operator: str, *values: str) -> dict:
    return {"matchExpressions": [{"key": "tier", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        ({}, {}, True),
        ({"matchLabels": {"a": "1", "b": "2"}}, {"a": "1", "b": "2", "c": "3"}, True),
        ({"matchLabels": {"a": "1", "b": "2"}}, {"a": "1"}, False),
        (expression("In", "x", "y"), {"tier": "y"}, True),
        (expression("In", "x", "y"), {}, False),
        (expression("NotIn", "x"), {}, True),
        (expression("NotIn", "x"), {"tier": "x"}, False),
        (expression("Exists"), {"tier": ""}, True),
        (expression("DoesNotExist"), {"tier": ""}, False),
        ({"matchLabels": {"a": "1"}, **expression("Exists")}, {"a": "1"}, False),
    ],
)
def test_selectors_select_as_kubernetes_does(selector, labels, selected):
    assert spec_of(podSelector=selector).selects({}, labels) is selected
    assert spec_of(namespaceSelector=selector).selects(labels, {}) is selected


def test_without_selectors_every_pod_is_selected_and_with_both_both_must_hold():
    assert spec_of().selects({}, {})
    both = spec_of(namespaceSelector={"matchLabels": {"n": "1"}}, podSelector={"matchLabels": {"p": "1"}})
    assert both.selects({"n": "1"}, {"p": "1"})
    assert not both.selects({"n": "1"}, {})
    assert not both.selects({}, {"p": "1"})


def test_its_policies_are_those_that_score():
    (literal, _) = get_args(NodeScoringSpec.model_fields["policy"].annotation)
    assert get_args(literal) == tuple(Policy)


def test_it_is_of_the_whole_cluster_and_has_no_status():
    definition = NODE_SCORING.manifest()["spec"]
    assert (definition["scope"], definition["names"]["shortNames"]) == ("Cluster", ["nsp"])
    (version,) = definition["versions"]
    assert "subresources" not in version
    assert "status" not in version["schema"]["openAPIV3Schema"]["properties"]
