"""Errors of the development cluster. Every message names the thing that failed and what to do about it."""

from __future__ import annotations

from click import ClickException


class DevClusterError(ClickException):
    """Base class; the command line prints the message without a traceback."""


class ToolchainError(DevClusterError):
    """No usable Go toolchain, and none could be fetched."""


class BuildError(DevClusterError):
    """A binary could not be built or downloaded."""


class StartError(DevClusterError):
    """A component of the control plane did not become ready."""


class ApiError(DevClusterError):
    """The API server refused a request."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class NotRunningError(DevClusterError):
    """The named cluster is not running."""
