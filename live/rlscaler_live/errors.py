"""Errors of `--env cluster`."""

from __future__ import annotations

import click


class LiveError(click.ClickException):
    """An option or a field cannot be used, or a package is not installed; the message names it and the remedy.

    The exit code is 2.
    """

    exit_code = 2
