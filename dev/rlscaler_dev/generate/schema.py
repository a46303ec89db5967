"""Structural OpenAPI v3 schemas, as a CustomResourceDefinition wants them, from the models.

Pydantic writes JSON Schema 2020-12. The API server takes a subset without `$ref`, `title`, `const` or `null` types:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

import json
from typing import Any

from rlscaler_core.api.base import Model

Schema = dict[str, Any]

COPIED = (
    "type",
    "format",
    "description",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
    "x-kubernetes-validations",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)
"""Keywords with the same meaning on both sides."""

FORMATS = ("int32", "int64", "date-time")


class UnsupportedSchemaError(TypeError):
    """A model uses something that a structural schema cannot express."""


def structural(model: type[Model]) -> Schema:
    """The structural schema of `model`.

    Raises:
        UnsupportedSchemaError: naming the keyword and where it stands.
    """
    source = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(source, source.get("$defs", {}), model.__name__)


def _convert(source: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    source = _merged(source, definitions, path)
    target = {key: source[key] for key in COPIED if key in source}
    if "description" in target:
        target["description"] = " ".join(target["description"].split())
    if "const" in source:
        target["enum"] = [source["const"]]
    _bounds(source, target)
    if "properties" in source:
        target["properties"] = {
            name: _convert(child, definitions, f"{path}.{name}") for name, child in source["properties"].items()
        }
    elif isinstance(source.get("additionalProperties"), dict):
        _mapping(source, target, definitions, path)
    if "items" in source:
        target["items"] = _convert(source["items"], definitions, f"{path}[]")
        target.setdefault("x-kubernetes-list-type", "atomic")
    if source.get("default") is not None:
        # Written out in full: the API server checks a default against the rules before it fills in the fields below it.
        target["default"] = _without_null(source["default"])
        target["description"] = (target.get("description", "") + default_text(target)).lstrip()
    _check(source, target, path)
    return dict(sorted(target.items()))


def default_text(schema: Schema) -> str:
    """Return the sentence about the default at the end of a description: `kubectl explain` does not show defaults."""
    value = schema.get("default")
    return "" if value is None or isinstance(value, dict) else f" Default: {json.dumps(value)}."


def _merged(source: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    """The schema with its reference and its `X | None` resolved; keywords beside them win."""
    beside = {key: value for key, value in source.items() if key not in ("$ref", "anyOf")}
    if "$ref" in source:
        return {**_merged(definitions[source["$ref"].removeprefix("#/$defs/")], definitions, path), **beside}
    if "anyOf" in source:
        options = [option for option in source["anyOf"] if option.get("type") != "null"]
        if len(options) != 1:
            raise UnsupportedSchemaError(f"{path}: anyOf of several types: give the field one type")
        return {**_merged(options[0], definitions, path), **beside}
    return source


def _bounds(source: Schema, target: Schema) -> None:
    """Exclusive bounds are numbers in JSON Schema and flags in OpenAPI v3.0."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in source:
            target |= {bound: source[exclusive], exclusive: True}


def _mapping(source: Schema, target: Schema, definitions: dict[str, Schema], path: str) -> None:
    """A map from names to values; where the names are fixed, a CEL rule refuses others."""
    target["additionalProperties"] = _convert(source["additionalProperties"], definitions, f"{path}{{}}")
    names = source.get("propertyNames", {}).get("enum")
    if names:
        quoted = ", ".join(f"'{name}'" for name in names)
        rule = {
            "rule": f"self.all(name, name in [{quoted}])",
            "message": f"{path.rpartition('.')[2]} has an unknown name: use only {', '.join(names)}",
        }
        target["x-kubernetes-validations"] = [*target.get("x-kubernetes-validations", []), rule]


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(item) for key, item in value.items() if item is not None}
    return value


def _check(source: Schema, target: Schema, path: str) -> None:
    if "type" not in target:
        raise UnsupportedSchemaError(f"{path}: a structural schema needs a type")
    if target.get("format", "int32") not in FORMATS:
        raise UnsupportedSchemaError(f"{path}: format {target['format']} is not one of {', '.join(FORMATS)}")
    left = set(source) - set(COPIED) - {
        "$defs", "title", "const", "default", "properties", "additionalProperties", "propertyNames", "items",
        "exclusiveMinimum", "exclusiveMaximum",
    }  # fmt: skip
    if left:
        raise UnsupportedSchemaError(f"{path}: {', '.join(sorted(left))} cannot be expressed")
