"""The same commands as a kubectl plugin: `kubectl rlscale …` finds `kubectl-rlscale` on PATH."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import ClassVar

import click
from click.shell_completion import ShellComplete

from rlscaler_live.cli import LazyGroup

COMMANDS = ("explain", "init", "pause", "preflight", "promote", "resume", "status", "ui")
"""Commands for objects in a cluster; the rest of `rlscaler` is no business of kubectl's."""

NO_FILES = ":4"
"""End of the list of completions for kubectl: cobra's directive ShellCompDirectiveNoFileComp."""


class PluginGroup(LazyGroup):
    """`rlscaler` with some of its commands."""

    sections: ClassVar[Mapping[str, tuple[str, ...]]] = {"Commands": COMMANDS}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) if cmd_name in COMMANDS else None


@click.group(cls=PluginGroup, context_settings={"help_option_names": ["-h", "--help"]})
def plugin() -> None:
    """Write and check RLScalingPolicies, look at them, pause, resume and promote them."""


def main() -> None:
    """`kubectl-rlscale`."""
    plugin(prog_name="kubectl rlscale")


def complete() -> None:
    """Run `kubectl_complete-rlscale WORDS...`: print the completions of the last word for kubectl."""
    *before, incomplete = sys.argv[1:] or [""]
    for item in ShellComplete(plugin, {}, "kubectl-rlscale", "_COMPLETE").get_completions(before, incomplete):
        click.echo(f"{item.value}\t{item.help}" if item.help else item.value)
    click.echo(NO_FILES)
