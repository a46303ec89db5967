"""`rlscaler scheduler`: the server, and the learning of placement. A command is imported only when it is called."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import click

COMMANDS = {
    **{name: f"rlscaler_scheduler.cli:{name}" for name in ("run", "latency", "config", "explain", "replay")},
    **{name: f"rlscaler_rl.placement.cli:{name}" for name in ("train", "compare")},
    "openb": "rlscaler_rl.placement.openb_cli:openb",
}

GROUP = "rlscaler.scheduler"
"""Entry point group of commands that other distributions add, as the development tools do."""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *sorted(point.name for point in entry_points(group=GROUP))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            return EntryPoint(cmd_name, COMMANDS[cmd_name], GROUP).load()
        return next((point.load() for point in entry_points(group=GROUP, name=cmd_name)), None)


@click.group(cls=_Lazy)
def scheduler() -> None:
    """Suggest nodes to kube-scheduler; train, compare and replay its networks."""
