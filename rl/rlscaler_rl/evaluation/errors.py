"""What can be wrong before an episode is played, and with tuned settings or a service."""

from __future__ import annotations

import click


class EvaluationError(click.ClickException):
    """A wrong model, option, configuration, policy, history or tuned setting; the message says what to change.

    The exit code is 2.
    """

    exit_code = 2


class NotWorthPublishingError(EvaluationError):
    """All is in order, and the verdict on a policy is that it should not be published. The exit code is 3."""

    exit_code = 3
