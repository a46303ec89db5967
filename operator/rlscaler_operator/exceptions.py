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
    """Raised where Prometheus or Kafka gives no usable answer."""

    reason = "PrometheusUnreachable"
    divisible = False
    """True where single policies may be the reason for which a query of several was refused."""


class CredentialError(OperatorError):
    """Raised where a Secret that a policy names cannot be read or lacks the key."""

    reason = "SecretUnavailable"


class ModelUnavailableError(OperatorError):
    """Raised where the policy's model cannot be loaded."""

    reason = "ModelInvalid"


class SpecInvalidError(OperatorError):
    """Raised where the policy's spec is invalid, or became invalid a moment ago."""

    reason = "InvalidSpec"


class KubeError(OperatorError):
    """Raised where the API server refused a request or did not answer; `status` is the HTTP status, 0 = no answer."""

    reason = "ApiServerError"

    def __init__(self, status: int, message: str, reason: str | None = None) -> None:
        super().__init__(message, reason)
        self.status = status


class FenceError(OperatorError):
    """Raised where the operator failed for one policy outside of its tick; the message says in which work."""

    reason = "InternalError"


class ShareError(OperatorError):
    """Raised where the operator failed to work out the shares of an RLScalingBudget, or that of one policy in it."""

    reason = "ShareFailed"

    def __init__(self, action: str, error: Exception) -> None:
        """`action` completes "the operator could not"."""
        super().__init__(
            f"the operator could not {action}: {error!r}; correct the field or object that the error names, or take "
            "the policy out of spec.members of the RLScalingBudget by its labels; otherwise report it with both "
            "objects and the operator's log"
        )
        self.__cause__ = error


class LeaseLostError(OperatorError):
    """Raised where the lease is not held, or ends before a write could finish."""

    reason = "LeaseLost"


class RecordError(OperatorError):
    """Raised for a line of the audit log that this release cannot read."""

    reason = "RecordInvalid"
