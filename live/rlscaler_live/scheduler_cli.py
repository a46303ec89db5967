"""`rlscaler scheduler`: the server, and the learning beside it. A subcommand is imported only when it is called."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

import click

SERVING = ("run", "latency", "config", "explain", "replay")
LEARNING = ("train", "evaluate", "compare", "openb")

GROUP = "rlscaler.scheduler"
"""Entry points of this group are commands that other distributions add, as the development tools do."""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*SERVING, *LEARNING, *sorted(point.name for point in entry_points(group=GROUP))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in (*SERVING, *LEARNING):
            found = list(entry_points(group=GROUP, name=cmd_name))
            added: click.Command | None = found[0].load() if found else None
            return added
        learning = "rlscaler_rl.placement.openb_cli" if cmd_name == "openb" else "rlscaler_rl.placement.cli"
        module = "rlscaler_scheduler.cli" if cmd_name in SERVING else learning
        command: click.Command = getattr(import_module(module), cmd_name)
        return command


@click.group(cls=_Lazy)
def scheduler() -> None:
    """Suggest nodes to kube-scheduler; train, compare and replay what suggests them."""
