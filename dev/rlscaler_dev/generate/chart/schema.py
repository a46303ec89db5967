"""values.schema.json: its rules are written by hand, its descriptions come from values.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rlscaler_dev.generate.chart.values import Value
from rlscaler_operator.exceptions import OperatorError

Schema = dict[str, Any]


def described(text: str, values: Iterable[Value]) -> str:
    """The schema with the description of every value.

    Raises OperatorError that names a key which only one of the two files has.
    """
    schema = _inlined(json.loads(text))
    known = set()
    for value in values:
        place = _property(schema, value)
        rules = {name: rule for name, rule in place.items() if name != "description"}
        place.clear()
        place.update({"description": value.description, **rules})
        known.add(value.name)
    if extra := sorted(name for name in _leaves(schema) if name not in known and name != "global"):
        raise OperatorError(
            f"values.schema.json: {', '.join(extra)}: not in values.yaml; add it there with its default"
        )
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def type_of(text: str, value: Value) -> str:
    """In a word: string, integer, list, ..."""
    found = _property(_inlined(json.loads(text)), value)
    if "enum" in found:
        return "one of " + ", ".join(map(str, found["enum"]))
    names = found.get("type", "any")
    return {"array": "list", "object": "map"}.get(names, names) if isinstance(names, str) else " or ".join(names)


def _inlined(schema: Schema) -> Schema:
    """The schema with its $defs in their places: a value that shares one has a description of its own."""
    shared = schema.pop("$defs", {})

    def replaced(node: Any) -> Any:
        if isinstance(node, list):
            return [replaced(item) for item in node]
        if not isinstance(node, dict):
            return node
        if name := str(node.get("$ref", "")).removeprefix("#/$defs/"):
            return replaced(shared[name] | {key: item for key, item in node.items() if key != "$ref"})
        return {key: replaced(item) for key, item in node.items()}

    inlined: Schema = replaced(schema)
    return inlined


def _property(schema: Schema, value: Value) -> Schema:
    place = schema
    for part in value.path:
        try:
            place = place["properties"][part]
        except KeyError as error:
            raise OperatorError(f"values.schema.json knows no {value.name}: add it under properties") from error
    return place


def _leaves(schema: Schema, above: str = "") -> Iterable[str]:
    """Names of properties that are described themselves, or hold no further ones."""
    for name, content in schema.get("properties", {}).items():
        path = f"{above}{name}"
        if "description" in content or not content.get("properties"):
            yield path
        else:
            yield from _leaves(content, f"{path}.")
