"""Errors of the development tools. Every message names the thing that failed and a remedy."""

from __future__ import annotations

import click


class DevClusterError(click.ClickException):
    """Base class; the command line prints the message without a traceback."""


class ToolchainError(DevClusterError):
    """No usable Go toolchain, and none could be fetched."""


class BuildError(DevClusterError):
    """A binary could not be built or downloaded."""


class StartError(DevClusterError):
    """A component did not become ready, or a condition was not met in time."""


class ApiError(DevClusterError):
    """The API server refused a request."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class NotRunningError(DevClusterError):
    """The named cluster is not running."""


class DemoError(click.ClickException):
    """The demo cannot start or go on; shown without a traceback, exit code 1."""


class ChildError(DemoError):
    """A process of the demo ended by itself or did not become ready."""


class RecordError(DemoError):
    """A result folder lacks a record or a record cannot be read."""
