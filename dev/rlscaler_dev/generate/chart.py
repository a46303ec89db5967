"""The Helm charts' generated files: copies of manifests, descriptions in the values' schema, README."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from rlscaler_dev.generate import recording
from rlscaler_dev.generate.definition import BUDGET, NODE_SCORING, POLICY
from rlscaler_dev.generate.pages import code, plain
from rlscaler_dev.markdown import table
from rlscaler_operator.exceptions import OperatorError

MARK = "# -- "
"""Begins the description of the key below; further comment lines continue it."""


@dataclass(frozen=True)
class Value:
    """One key."""

    path: tuple[str, ...]
    default: Any
    description: str

    @property
    def name(self) -> str:
        """The key as `helm --set` takes it."""
        return ".".join(self.path)


def read_values(text: str) -> list[Value]:
    """Every described key, in the file's order.

    A key without a description must hold further keys. Raises OperatorError that names one that has neither.
    """
    root = yaml.compose(text, yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise OperatorError("values.yaml is not a mapping of names to values")
    return list(_walk(root, (), text.splitlines()))


def _walk(node: yaml.MappingNode, above: tuple[str, ...], lines: list[str]) -> Iterator[Value]:
    for key, content in node.value:
        path = (*above, str(key.value))
        description = _comment(lines, key.start_mark.line)
        if description:
            yield Value(path, _plain(content), description)
        elif isinstance(content, yaml.MappingNode) and content.value:
            yield from _walk(content, path, lines)
        else:
            raise OperatorError(f"values.yaml: {'.'.join(path)} has no description: write '{MARK}...' above it")


def _comment(lines: list[str], line: int) -> str:
    """The description that ends above a line; empty where there is none."""
    parts: list[str] = []
    while line > 0 and (text := lines[line - 1].strip()).startswith("#"):
        line -= 1
        if text.startswith(MARK):
            return " ".join([text.removeprefix(MARK), *reversed(parts)])
        parts.append(text.removeprefix("#").strip())
    return ""


def _plain(node: yaml.Node) -> Any:
    return yaml.safe_load(yaml.serialize(node))


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
    """The type in a word: string, integer, list, ..."""
    schema = _property(_inlined(json.loads(text)), value)
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    names = schema.get("type", "any")
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


MARKER = "<!-- values -->"
HEADER = "<!-- Generated by `rlscaler chart generate` from README.md.in and values.yaml. Do not edit. -->"


def readme(template: str, values: Iterable[Value], schema: str) -> str:
    """README.md: the template README.md.in with the table of values in the place of its marker.

    Raises OperatorError where the marker is missing.
    """
    if MARKER not in template:
        raise OperatorError(f"README.md.in has no line {MARKER}: the table of values goes there")
    rows = [
        (code(value.name), type_of(schema, value), code(_short(value.default)), plain(value.description))
        for value in values
    ]
    title, _, rest = template.partition("\n")
    filled = rest.replace(MARKER, table(("value", "type", "default", "meaning"), rows).strip())
    return f"{title}\n\n{HEADER}\n{filled}"


def _short(default: object) -> str:
    """The value on one line of YAML."""
    return json.dumps(default, ensure_ascii=False)


CHARTS = Path("helm")
ADMISSION = Path("admission")
ROLES = ("rbac.yaml", "rbac-optional.yaml")
COPIED = "# Generated by `rlscaler chart generate` from {source}. Do not edit.\n"


def generated(charts: Path = CHARTS) -> Iterator[tuple[Path, Callable[[], str]]]:
    """Yield every generated file of every chart, with the function that renders it.

    A chart can only install files of its own folder, so roles and definitions are copied there.
    """
    installed = charts / "rlscaler" / "files"
    yield installed / "crd.yaml", POLICY.render
    yield installed / "crd-budgets.yaml", BUDGET.render
    yield installed / "crd-node-scoring.yaml", NODE_SCORING.render
    for roles in ROLES:
        yield installed / roles, partial(_roles, roles)
    for source in sorted(ADMISSION.glob("*.yaml")):
        yield installed / "admission" / source.name, partial(_admission, source)
    for preset in recording.recorded():
        yield charts / "rlscaler" / "recording" / f"{preset}.yaml", partial(_recording, preset)
    for chart in sorted(path.parent for path in charts.glob("*/Chart.yaml")):
        yield chart / "values.schema.json", partial(_schema, chart)
        yield chart / "README.md", partial(_readme, chart)


def _roles(name: str) -> str:
    source = resources.files("rlscaler_operator").joinpath(name).read_text(encoding="utf-8")
    return COPIED.format(source=f"operator/rlscaler_operator/{name}") + source


def _recording(preset: str) -> str:
    return COPIED.format(source="the table of presets") + recording.rules(preset)


def _admission(source: Path) -> str:
    return COPIED.format(source=source) + source.read_text(encoding="utf-8")


def _values(chart: Path) -> list[Value]:
    return read_values((chart / "values.yaml").read_text(encoding="utf-8"))


def _schema(chart: Path) -> str:
    return described((chart / "values.schema.json").read_text(encoding="utf-8"), _values(chart))


def _readme(chart: Path) -> str:
    template = (chart / "README.md.in").read_text(encoding="utf-8")
    return readme(template, _values(chart), (chart / "values.schema.json").read_text(encoding="utf-8"))
