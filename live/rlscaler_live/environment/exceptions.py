"""Errors of a live environment."""

from __future__ import annotations

import click

from rlscaler_operator.exceptions import OperatorError


class LiveEnvironmentError(OperatorError, click.ClickException):
    """The cluster, Prometheus or the load cannot be used; the message names it and the remedy.

    A ClickException, so that a command shows it without a traceback.
    """

    reason = "EnvironmentUnusable"
