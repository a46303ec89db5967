"""Errors of the API package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MISSING: Any = object()
"""Stands for the value of a field that is not there."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an object."""

    field: str
    """Path of the field, such as `spec.targets.gpu.minReplicas`."""
    value: Any
    """Value of the field; `MISSING` where there is none."""
    message: str
    """The error and its remedy."""

    def __str__(self) -> str:
        shown = "" if self.value is MISSING or isinstance(self.value, dict | list) else f" = {self.value!r}"
        return f"{self.field}{shown}: {self.message}"


class InvalidPolicy(ValueError):  # noqa: N818 - named for what it reports
    """An object that is not a valid RLScalingPolicy.

    Attributes:
        name: `namespace/name` of the object.
        problems: everything that is wrong, one entry per field.
    """

    def __init__(self, name: str, problems: list[Problem]) -> None:
        super().__init__(f"RLScalingPolicy {name}: " + "; ".join(map(str, problems)))
        self.name = name
        self.problems = problems


class InvalidBudgetError(ValueError):
    """An RLScalingBudget that cannot be used; its text has the path and the remedy of every wrong field."""


class InvalidNodeScoringError(ValueError):
    """A NodeScoringPolicy that cannot be used; its text has the path and the remedy of every wrong field."""
