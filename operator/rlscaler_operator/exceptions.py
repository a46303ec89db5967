"""Errors of the operator, each with the reason that conditions and Events show."""

from __future__ import annotations


class OperatorError(Exception):
    """Base of the operator's errors. `reason` is CamelCase as in Kubernetes conditions."""

    reason = "Error"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class MetricsError(OperatorError):
    """Prometheus gave no answer that can be used."""

    reason = "PrometheusUnreachable"


class CredentialError(OperatorError):
    """A Secret that a policy names cannot be read or lacks the key."""

    reason = "SecretUnavailable"


class ModelUnavailableError(OperatorError):
    """The policy's model cannot be loaded."""

    reason = "ModelInvalid"


class SpecInvalidError(OperatorError):
    """The policy's spec cannot be used, perhaps since a moment ago."""

    reason = "InvalidSpec"


class KubeError(OperatorError):
    """The API server refused a request or did not answer.

    `status` is the HTTP status, 0 when there was no answer.
    """

    reason = "ApiServerError"

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class LeaseLostError(OperatorError):
    """The lease is not held, or runs out before a write could finish."""

    reason = "LeaseLost"


class RecordError(OperatorError):
    """A line of the audit log is not a decision that this release can read."""

    reason = "RecordInvalid"
