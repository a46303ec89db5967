"""Errors of models, options, configuration files, tuned settings and services."""

from __future__ import annotations

import click


class EvaluationError(click.ClickException):
    """A wrong model, option, configuration, policy, history or tuned setting; the message names the remedy.

    The exit code is 2.
    """

    exit_code = 2


class NotWorthPublishingError(EvaluationError):
    """The inputs are valid, and the verdict is not to publish the policy. The exit code is 3."""

    exit_code = 3
