"""What can be wrong with a policy, a history or a result that is asked for."""

from __future__ import annotations

import click


class TailoringError(click.ClickException, ValueError):
    """The message names the object, the field and the remedy. Exit code 2."""

    exit_code = 2
