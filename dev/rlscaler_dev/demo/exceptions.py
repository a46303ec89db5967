"""What can go wrong in a demo run; every message says which thing and what to do about it."""

from __future__ import annotations

import click


class DemoError(click.ClickException):
    """The demo cannot start or go on; shown without a traceback, exit code 1."""


class ChildError(DemoError):
    """A process of the demo ended by itself or did not become ready."""


class RecordError(DemoError):
    """A result folder lacks a record or a record cannot be read."""
