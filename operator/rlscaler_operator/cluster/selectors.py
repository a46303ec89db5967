"""Label selectors of a scale's pods, as the API server writes them into `status.selector`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_LABEL = r"([^\s=!,()]+)"
_VALUE = r"(?:(==|=|!=)\s*([^\s,()]*)|(in|notin)\s*\(([^)]*)\))?"
_PART = re.compile(rf"\s*(?:(!)\s*{_LABEL}|{_LABEL}\s*{_VALUE})\s*(?:,|$)")
"""Pattern of one requirement: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a` or `!a` (apimachinery/pkg/labels)."""


class Requirement(NamedTuple):
    """Values that a label has to have, or must not have; None stands for any value."""

    label: str
    values: frozenset[str] | None
    wanted: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.label)
        matches = value is not None and (self.values is None or value in self.values)
        return matches == self.wanted


Selector = tuple[Requirement, ...]


def parse_selector(text: str) -> Selector | None:
    """Parse a selector; None where it is empty or malformed: it selects nothing then, not everything."""
    requirements, at = [], 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            return None
        missing, absent, label, operator, value, words, values = match.groups()
        if missing:
            requirements.append(Requirement(absent, None, wanted=False))
        elif operator:
            requirements.append(Requirement(label, frozenset({value}), wanted=operator != "!="))
        elif words:
            choices = frozenset(choice.strip() for choice in values.split(","))
            requirements.append(Requirement(label, choices, wanted=words == "in"))
        else:
            requirements.append(Requirement(label, None, wanted=True))
        at = match.end()
    return tuple(requirements) or None


def as_texts(selector: Selector) -> list[str]:
    """Return a selector as `admission/new-pods.yaml` reads it: each requirement as `a=b|c`, `a!=b|c`, `a` or `!a`."""
    return [_text(requirement) for requirement in selector]


def _text(requirement: Requirement) -> str:
    label, values, wanted = requirement
    if values is None:
        return label if wanted else f"!{label}"
    return f"{label}{'=' if wanted else '!='}{'|'.join(sorted(values))}"


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    return all(requirement.holds(labels) for requirement in selector)
