"""values.yaml as documentation: each key with the comment above it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

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
        """As `helm --set` takes it."""
        return ".".join(self.path)


def read(text: str) -> list[Value]:
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
