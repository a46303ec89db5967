"""Errors of the decision function. Every message names the object, the field and the remedy."""

from __future__ import annotations


class DecisionError(Exception):
    """Base of everything that `rlscaler_core.decision` raises on purpose."""


class ColumnError(DecisionError, ValueError):
    """A column is unknown, missing or has a shape that does not fit N rows."""


class ModelError(DecisionError):
    """An actor file or its manifest cannot be used; a good one that is already loaded stays in force."""


class ContractMismatchError(ModelError):
    """The artefact was made for another observation contract, or the state was made for another stack."""


class ForecasterStateError(DecisionError):
    """A stored forecaster cannot be read; the service is learned again, and the plain forecast serves meanwhile."""
