"""RLScalingBudget: what is refused, what is filled in, and that the schema says the same as the models."""

from __future__ import annotations

import math
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from rlscaler_core.api.budget import parse_budget
from rlscaler_core.api.exceptions import InvalidBudgetError
from rlscaler_dev.generate.definition import BUDGET

PAGE = Path(__file__).parents[3] / "docs" / "budgets.md"


def body(**spec):
    spec = {"amount": 8, "members": [{"name": "a"}]} | spec
    return {"apiVersion": "rlscaler.io/v1alpha1", "kind": "RLScalingBudget", "metadata": {"name": "b"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"amount": -1}, r"spec\.amount"),
        ({"amountFrom": {"nodes": {"matchLabels": {"pool": "gpu"}}}}, "name either amount or amountFrom"),
        ({"amount": None}, "name either amount or amountFrom"),
        ({"amount": None, "amountFrom": {"nodes": {"matchLabels": {}}}}, "matchLabels"),
        ({"amount": float("nan")}, r"spec\.amount"),
        (
            {"amount": 2, "members": [{"name": "a", "guaranteed": 1.5}, {"name": "b", "guaranteed": 1}]},
            "more than amount",
        ),
        ({"members": [{"name": "a", "guaranteed": 3, "ceiling": 2}]}, "ceiling is below guaranteed"),
        ({"members": [{"name": "a", "weight": 0}]}, r"members\.0\.weight"),
        ({"members": [{"name": "a", "unitsPerReplica": 0}]}, "unitsPerReplica"),
        ({"members": [{"name": "a", "gaurantee": 1}]}, "gaurantee"),
        ({"members": []}, r"spec\.members"),
        ({"members": [{"name": "a"}] * 101}, r"spec\.members"),
        ({"arbiter": "Learned"}, r"spec\.arbiter"),
        ({"lending": {"reclaimIntervals": 0}}, "reclaimIntervals"),
        ({"pool": "tpu"}, r"spec\.pool"),
    ],
)
def test_refused_by_the_name_of_the_field(spec, named):
    with pytest.raises(InvalidBudgetError, match=named):
        parse_budget(body(**spec))
    if any(word in named for word in ("more than", "below", "either")) or spec.get("amount") != spec.get("amount"):
        return  # rules of CEL, and what JSON cannot say
    strict = BUDGET.schema()["properties"]["spec"]
    strict["properties"]["members"]["items"]["additionalProperties"] = False
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body(**spec)["spec"], strict, cls=jsonschema.Draft4Validator)


def test_a_status_that_cannot_be_read_counts_as_none():
    found = parse_budget(body() | {"status": {"members": [{"namespace": 3}], "granted": 2}})
    assert found.status.granted is None
    assert parse_budget(body() | {"status": {"granted": 2, "newer": 1}}).status.granted == 2


def test_the_pages_examples_are_valid_and_their_defaults_are_those_of_the_schema():
    text, counted, several, priced = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    from_nodes = parse_budget(body(amount=None, **yaml.safe_load(counted)["spec"])).spec
    assert from_nodes.amount_from is not None
    assert from_nodes.amount_from.nodes.match_labels == {"pool": "gpu"}
    example = yaml.safe_load(text)
    for spec in (example["spec"], yaml.safe_load(priced)["spec"], yaml.safe_load(several)["spec"]):
        jsonschema.validate(spec, BUDGET.schema()["properties"]["spec"], cls=jsonschema.Draft4Validator)
    assert parse_budget(body(**yaml.safe_load(priced)["spec"])).spec.members[0].units_per_replica == 4.1
    spec = parse_budget(example).spec
    assert [share.guaranteed for share in spec.members] == [6, None, 4]
    assert [one.name for one in parse_budget(yaml.safe_load(several)).spec.shared] == ["nvidia.com/gpu", "cpu"]
    properties = BUDGET.schema()["properties"]["spec"]["properties"]
    least = parse_budget(body()).spec.to_dict()
    for name, child in properties.items():
        if "default" in child:
            assert least[name] == child["default"], name


def test_every_field_is_described_and_every_list_is_bounded():
    def walk(node, path):
        assert node.get("description") or path.count(".") < 1 or "[]" in path[-2:] or "{}" in path[-2:], path
        assert node["type"] != "array" or "maxItems" in node, path
        assert node["type"] != "string" or node.keys() & {"maxLength", "enum", "format"}, path
        for name, child in node.get("properties", {}).items():
            walk(child, f"{path}.{name}")
        if "items" in node:
            walk(node["items"], f"{path}[]")

    for part in ("spec", "status"):
        walk(BUDGET.schema()["properties"][part], part)


def test_names_of_members_are_unique_and_columns_read_well():
    members = BUDGET.schema()["properties"]["spec"]["properties"]["members"]
    assert (members["x-kubernetes-list-type"], members["x-kubernetes-list-map-keys"]) == ("map", ["name"])
    definition = BUDGET.manifest()["spec"]
    assert (definition["scope"], definition["names"]["shortNames"]) == ("Cluster", ["rlsb"])
    (version,) = definition["versions"]
    always = [c["name"] for c in version["additionalPrinterColumns"] if not c.get("priority")]
    assert always == ["Granted", "Policies", "Guarantees", "Ready", "Age"]


def test_an_entry_selects_by_namespace_and_all_of_its_labels():
    share = parse_budget(
        body(members=[{"name": "a", "namespace": "x", "matchLabels": {"p": "1", "q": "2"}}])
    ).spec.members[0]
    assert share.selects("x", {"p": "1", "q": "2", "r": "3"})
    assert not share.selects("y", {"p": "1", "q": "2"})
    assert not share.selects("x", {"p": "1"})


def of_two(*members, **amounts):
    """A budget of GPUs and CPUs."""
    listed = [{"name": name, "amount": amount} for name, amount in ({"gpu": 4, "cpu": 9} | amounts).items()]
    return {"amount": None, "resources": listed, "members": list(members)}


def test_one_resource_is_the_short_form_of_a_list_of_one():
    short = parse_budget(body(members=[{"name": "a", "unitsPerReplica": 2, "guaranteed": 4, "ceiling": 6}])).spec
    share = {"name": "nvidia.com/gpu", "unitsPerReplica": 2, "guaranteed": 4, "ceiling": 6}
    listed = [{"name": "nvidia.com/gpu", "amount": 8}]
    long = parse_budget(body(amount=None, resources=listed, members=[{"name": "a", "resources": [share]}])).spec
    assert [one.to_dict() for one in short.shared] == [one.to_dict() for one in long.shared]
    assert short.terms(short.members[0]) == long.terms(long.members[0]) == ((2.0, 4.0, 6.0),)
    assert parse_budget(body()).spec.terms(parse_budget(body()).spec.members[0]) == ((1.0, 0.0, math.inf),)


def test_of_several_resources_terms_are_in_the_order_of_the_budget():
    spec = parse_budget(body(**of_two({"name": "a", "resources": [{"name": "cpu", "ceiling": 4}]}, {"name": "b"}))).spec
    assert spec.terms(spec.members[0]) == ((0.0, 0.0, math.inf), (None, 0.0, 4.0)), "it takes no GPU"
    assert spec.terms(spec.members[1]) == ((None, 0.0, math.inf),) * 2, "both as its pods request them"


def guaranteed(name, **units):
    return {"name": name, "resources": [{"name": one, "guaranteed": each} for one, each in units.items()]}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (of_two({"name": "a"}) | {"amount": 2}, "beside resources there can be no resource"),
        (of_two({"name": "a"}) | {"resource": "gpu"}, "beside resources there can be no resource"),
        (of_two({"name": "a", "guaranteed": 1}), "members state resources in place of"),
        ({"members": [guaranteed("a", cpu=1)]}, "members state resources in place of"),
        (of_two(guaranteed("a", memory=1)), "a resource that is not in spec.resources"),
        (of_two(guaranteed("a", cpu=1, gpu=0)), "for all resources of the member or for none"),
        (of_two({"name": "a", "weight": 1, "unitsPerReplica": 1, "resources": [{"name": "cpu"}]}), "beside resources"),
        (of_two(guaranteed("a", cpu=5, gpu=1), guaranteed("b", cpu=5, gpu=1)), "more than the amount of a resource"),
        (of_two({"name": "a"}, gpu=None), "name either amount or amountFrom"),
    ],
)
def test_what_makes_no_sense_of_several_resources_is_refused(spec, named):
    with pytest.raises(InvalidBudgetError, match=named):
        parse_budget(body(**spec))


def test_a_guarantee_of_all_resources_within_their_amounts_is_taken():
    spec = parse_budget(body(**of_two(guaranteed("a", cpu=5, gpu=2), guaranteed("b", cpu=4, gpu=2)))).spec
    assert not spec.overcommitted
