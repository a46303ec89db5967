"""What can be wrong with a workload or a trace that is asked for."""

from __future__ import annotations

import click


class WorkloadError(click.ClickException, ValueError):
    """The message names the workload, the part or the file, and what to do. Exit code 2."""

    exit_code = 2
