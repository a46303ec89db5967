"""RLScalingBudget: what is refused, what is filled in, and that the schema says the same as the models."""

from __future__ import annotations

import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from rlscaler_core.api.budget import parse_budget
from rlscaler_core.api.exceptions import InvalidBudgetError
from rlscaler_dev.generate.definition import budget_manifest, budget_schema

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
    strict = budget_schema()["properties"]["spec"]
    strict["properties"]["members"]["items"]["additionalProperties"] = False
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body(**spec)["spec"], strict, cls=jsonschema.Draft4Validator)


def test_a_status_that_cannot_be_read_counts_as_none():
    found = parse_budget(body() | {"status": {"members": [{"namespace": 3}], "granted": 2}})
    assert found.status.granted is None
    assert parse_budget(body() | {"status": {"granted": 2, "newer": 1}}).status.granted == 2


def test_the_pages_examples_are_valid_and_their_defaults_are_those_of_the_schema():
    text, counted, priced = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    from_nodes = parse_budget(body(amount=None, **yaml.safe_load(counted)["spec"])).spec
    assert from_nodes.amount_from is not None
    assert from_nodes.amount_from.nodes.match_labels == {"pool": "gpu"}
    example = yaml.safe_load(text)
    for spec in (example["spec"], yaml.safe_load(priced)["spec"]):
        jsonschema.validate(spec, budget_schema()["properties"]["spec"], cls=jsonschema.Draft4Validator)
    assert parse_budget(body(**yaml.safe_load(priced)["spec"])).spec.members[0].units_per_replica == 4.1
    spec = parse_budget(example).spec
    assert [share.guaranteed for share in spec.members] == [6, 0, 4]
    properties = budget_schema()["properties"]["spec"]["properties"]
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
        walk(budget_schema()["properties"][part], part)


def test_names_of_members_are_unique_and_columns_read_well():
    members = budget_schema()["properties"]["spec"]["properties"]["members"]
    assert (members["x-kubernetes-list-type"], members["x-kubernetes-list-map-keys"]) == ("map", ["name"])
    definition = budget_manifest()["spec"]
    assert (definition["scope"], definition["names"]["shortNames"]) == ("Cluster", ["rlsb"])
    (version,) = definition["versions"]
    always = [c["name"] for c in version["additionalPrinterColumns"] if not c.get("priority")]
    assert always == ["Resource", "Amount", "Granted", "Borrowed", "Idle", "Policies", "Guarantees", "Ready", "Age"]


def test_an_entry_selects_by_namespace_and_all_of_its_labels():
    share = parse_budget(
        body(members=[{"name": "a", "namespace": "x", "matchLabels": {"p": "1", "q": "2"}}])
    ).spec.members[0]
    assert share.selects("x", {"p": "1", "q": "2", "r": "3"})
    assert not share.selects("y", {"p": "1", "q": "2"})
    assert not share.selects("x", {"p": "1"})
