"""Errors that a user of the load generator or the service can act on."""

from __future__ import annotations


class LoadgenError(Exception):
    """Base of all; the message names the object and the remedy."""


class ServiceError(LoadgenError):
    """The service cannot start."""


class LoadError(LoadgenError):
    """The load generator cannot start or did not finish."""


class TraceError(LoadgenError, ValueError):
    """Raised for a recorded load that cannot be replayed; names the file, the line and the remedy."""
