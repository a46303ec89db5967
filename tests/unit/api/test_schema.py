"""The schema is structural, bounded, and fills in the same defaults as the models."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Literal

import jsonschema
import pytest
from click.testing import CliRunner

from rlscaler_core.api import parse
from rlscaler_core.api.base import Model
from rlscaler_dev.generate.cli import crd
from rlscaler_dev.generate.definition import POLICY
from rlscaler_dev.generate.schema import UnsupportedSchemaError, structural

ROOT = Path(__file__).parents[3]
FORBIDDEN = {
    "$ref", "$defs", "definitions", "anyOf", "oneOf", "allOf", "not", "const", "title", "nullable", "propertyNames",
    "additionalItems", "patternProperties", "dependencies", "deprecated", "readOnly", "writeOnly", "discriminator",
}  # fmt: skip


def walk(schema, path=""):
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from walk(schema[key], f"{path}.{key}")


SCHEMA = POLICY.schema()


def test_every_field_is_structural_described_and_bounded():
    nodes = {path: node for path, node in walk(SCHEMA) if path and not path.startswith(".metadata")}
    assert len(nodes) > 300
    failures = {path: failed for path, node in nodes.items() if (failed := list(_unmet(path, node)))}
    assert not failures


def _unmet(path, node):
    """Yield each rule of structural schemas, and of ours, that a field breaks."""
    if node["type"] not in ("object", "array", "string", "integer", "number", "boolean"):
        yield f"type {node['type']}"
    if unknown := FORBIDDEN & set(node):
        yield f"not structural: {unknown}"
    if "properties" in node and "additionalProperties" in node:
        yield "properties and additionalProperties"
    if not path.endswith((".items", ".additionalProperties")):
        description = node.get("description", "")
        if not description.endswith((".", "`")) or "\n" in description:
            yield f"description {description!r}"
    if node["type"] == "array":
        if not node.get("maxItems", 92) <= 91:
            yield "maxItems above 91, or without"
        if node.get("x-kubernetes-list-type") not in ("atomic", "map"):
            yield "no list type"
    if path.startswith(".spec") and node["type"] == "string" and not {"enum", "maxLength"} & set(node):
        yield "a string without enum and maxLength"
    if "additionalProperties" in node and "maxProperties" not in node:
        yield "a map without maxProperties"


def test_field_paths_of_the_rules_exist():
    for path, node in walk(SCHEMA):
        for rule in node.get("x-kubernetes-validations", []):
            place = node
            for part in rule.get("fieldPath", "").split(".")[1:]:
                assert part in place["properties"], f"{path}: {rule}"
                place = place["properties"][part]


def defaulted(schema, value):
    """What the API server stores: defaults are filled in below every object that is there."""
    for name, child in schema.get("properties", {}).items():
        if name not in value and "default" in child:
            value[name] = copy.deepcopy(child["default"])
        if name in value and child["type"] == "object":
            defaulted(child, value[name])
    return value


def without_empty(value):
    """Lists, maps and objects that hold nothing do not count."""
    if not isinstance(value, dict):
        return value
    pruned = {key: without_empty(item) for key, item in value.items()}
    return {key: item for key, item in pruned.items() if item not in ({}, [])}


@pytest.mark.parametrize(
    "values",
    [{}, {"behavior": {"scaleUp": {}}}, {"fallback": {"behavior": "hpaFormula"}}, {"metrics": {"prometheus": {}}}],
    ids=str,
)
def test_schema_and_models_have_the_same_defaults(body, values):
    stored = defaulted(SCHEMA["properties"]["spec"], body(values)["spec"])
    assert without_empty(stored) == without_empty(parse(body(values)).spec.to_dict())


def test_required_fields_have_no_default():
    for path, node in walk(SCHEMA):
        for name in node.get("required", []):
            assert "default" not in node["properties"][name], f"{path}.{name}"


def test_columns_in_order():
    (version,) = POLICY.manifest()["spec"]["versions"]
    columns = {column["name"]: column.get("priority", 0) for column in version["additionalPrinterColumns"]}
    always = [name for name, priority in columns.items() if not priority]
    assert always == ["Mode", "State", "GPU", "CPU", "Placement", "P95", "Cost/h", "Ready", "Age"]
    assert set(columns) - set(always) == {"Reason", "Fallback", "Promotion", "Model"}
    assert version["subresources"] == {"status": {}}
    assert POLICY.manifest()["spec"]["names"]["shortNames"] == ["rlsp"]


def test_yaml_has_no_anchors():
    assert "&id" not in POLICY.render()


def test_example_obeys_the_schema(body):
    jsonschema.validate(body()["spec"], SCHEMA["properties"]["spec"], cls=jsonschema.Draft4Validator)


def test_a_field_of_two_types_is_refused_by_name():
    class Ambiguous(Model):
        """A model."""

        port: int | str
        """Either."""

    with pytest.raises(UnsupportedSchemaError, match=r"Ambiguous\.port"):
        structural(Ambiguous)


def test_fixed_names_of_a_map_become_a_rule():
    class Mapping(Model):
        """A model."""

        limits: dict[Literal["low", "high"], int]
        """Limits."""

    (rule,) = structural(Mapping)["properties"]["limits"]["x-kubernetes-validations"]
    assert rule["rule"] == "self.all(name, name in ['low', 'high'])"


def test_committed_files_are_what_the_models_describe(monkeypatch):
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(crd, ["check"])
    assert result.exit_code == 0, result.output


def test_check_shows_the_drift_and_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(crd, ["generate"]).exit_code == 0
    assert CliRunner().invoke(crd, ["check"]).exit_code == 0
    path = tmp_path / "crds/rlscalingpolicies.yaml"
    path.write_text(path.read_text().replace("default: Shadow", "default: Auto"))
    result = CliRunner().invoke(crd, ["check"])
    assert result.exit_code == 1
    assert "-                default: Auto" in result.output
    assert "rlscaler crd generate" in result.output
