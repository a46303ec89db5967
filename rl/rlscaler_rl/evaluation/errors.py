"""What can go wrong before an episode is played."""

from __future__ import annotations

import click


class EvaluationError(click.ClickException):
    """A wrong model, option or configuration; the message says what to change. Exit code 2."""

    exit_code = 2
