"""Draft of a policy: fields in order, each with the reason of its value. Pure."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, field
from typing import Any

import yaml

from rlscaler_core.api import GROUP, KIND, VERSION, parse

HEAD = (
    "# Written by `rlscaler init` from what runs. Look over what is marked GUESS; fields that are not here have",
    "# defaults (docs/policy-reference.md). Next: `rlscaler preflight` with this file, then `kubectl apply -f`.",
)


WIDTH = 118
"""Longest line of a comment."""


@dataclass(slots=True)
class Draft:
    """Fields by their path, such as `spec.targets.gpu.maxReplicas`, in the order in which they are written."""

    namespace: str
    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """Reasons of the values, by path; a path without a value is left to its default or to be learned."""
    lost: list[str] = field(default_factory=list)
    """Sentences on settings of the present scaler that the policy lacks."""

    def set(self, path: str, value: Any, why: str = "") -> None:
        self.fields[path] = value
        if why:
            self.notes[path] = why

    def leave(self, path: str, why: str) -> None:
        """Write a field as a comment only, without a value."""
        self.notes[path] = why

    def body(self) -> dict[str, Any]:
        """Return the object. Raises InvalidPolicy where the service's objects make no valid policy."""
        body: dict[str, Any] = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "metadata": {"name": self.name, "namespace": self.namespace},
        }
        for path, value in self.fields.items():
            *parents, last = path.split(".")
            node = body
            for parent in parents:
                node = node.setdefault(parent, {})
            node[last] = value
        parse(body)
        return body

    def yaml(self) -> str:
        """Return the object as YAML with the notes as comments, each above its field."""
        lost = [line for text in self.lost for line in _comment(f"NOT TAKEN OVER: {text}", "")]
        return "\n".join([*HEAD, *lost, *_lines(self.body(), self.notes, "", 0)]) + "\n"

    def json(self) -> str:
        """Return the object and the notes as JSON."""
        return json.dumps({"policy": self.body(), "notes": self.notes, "notTakenOver": self.lost}, indent=2) + "\n"


def _lines(node: dict[str, Any], notes: dict[str, str], path: str, depth: int) -> list[str]:
    indent, lines = "  " * depth, []
    for key, value in node.items():
        here = f"{path}.{key}" if path else key
        if here in notes:
            lines += _comment(notes[here], indent)
        if isinstance(value, dict) and value:
            lines += [f"{indent}{key}:", *_lines(value, notes, here, depth + 1)]
        elif isinstance(value, list):
            text = yaml.safe_dump(value, default_flow_style=False, sort_keys=False, width=200)
            lines += [f"{indent}{key}:", *(f"{indent}  {line}" for line in text.splitlines())]
        else:
            text = yaml.safe_dump(value, default_flow_style=True, width=10_000)
            lines.append(f"{indent}{key}: " + text.removesuffix("\n...\n").strip())
    for left, note in notes.items():
        rest = left.removeprefix(f"{path}.") if path else left
        below = left.startswith(f"{path}.") and rest.partition(".")[0] not in node
        if below:
            lines += [*_comment(note, indent), f"{indent}# {rest}:"]
    return lines


def _comment(text: str, indent: str) -> list[str]:
    begin = f"{indent}# "
    return textwrap.wrap(
        text, WIDTH, initial_indent=begin, subsequent_indent=begin, break_long_words=False, break_on_hyphens=False
    )
