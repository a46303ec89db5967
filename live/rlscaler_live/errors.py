"""What can go wrong with `--env cluster`."""

from __future__ import annotations

import click


class LiveError(click.ClickException):
    """An option or a field cannot be used, or something is not installed; the message says which and what to do.

    The exit code is 2.
    """

    exit_code = 2
