"""`rlscaler completion`: the script that makes a shell complete commands, options and policies' names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell; names of policies are asked of the cluster.

    \b
    rlscaler completion bash > /etc/bash_completion.d/rlscaler
    rlscaler completion zsh > "${fpath[1]}/_rlscaler"
    rlscaler completion fish > ~/.config/fish/completions/rlscaler.fish
    """
    from rlscaler_live.cli import main

    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"this release of click knows no completion for {shell}")
    click.echo(found(main, {}, "rlscaler", "_RLSCALER_COMPLETE").source())
