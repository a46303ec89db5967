"""What can go wrong with `--env cluster`."""

from __future__ import annotations

import click


class LiveError(click.ClickException):
    """Something is not installed, or an option or a field cannot be used; the message says which and what to do."""
