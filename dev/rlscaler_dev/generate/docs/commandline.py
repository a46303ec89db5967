"""The page of all commands, from the same texts as `--help`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from rlscaler_dev.generate.docs.markdown import code, plain, table
from rlscaler_live.cli import main

INTRODUCTION = """\
# Commands

`rlscaler COMMAND --help` prints the same. `RLSCALER_DEBUG=1` in the environment logs everything.
"""


def render() -> str:
    """The page as Markdown."""
    return INTRODUCTION + "".join(f"\n{part}\n" for part in _command(click.Context(main, info_name="rlscaler"), 1))


def _command(ctx: click.Context, depth: int) -> Iterator[str]:
    """The command and its subcommands, depth first."""
    command = ctx.command
    children = _children(ctx)
    if depth > 1:
        yield f"{'#' * min(depth, 4)} {ctx.command_path}"
        yield _text(command.help or "")
        if not children or _options(ctx):
            yield f"```text\n{' '.join([ctx.command_path, *command.collect_usage_pieces(ctx)])}\n```"
    if options := _options(ctx):
        yield table(["option", "meaning"], options)
    if children:
        rows = [(_link(child), plain(child.command.get_short_help_str(200))) for child in children]
        yield table(["command", "does"], rows)
    for child in children:
        yield from _command(child, depth + 1)


def _children(ctx: click.Context) -> list[click.Context]:
    if not isinstance(ctx.command, click.Group):
        return []
    commands = [(name, ctx.command.get_command(ctx, name)) for name in ctx.command.list_commands(ctx)]
    return [
        click.Context(command, info_name=name, parent=ctx)
        for name, command in commands
        if command and not command.hidden
    ]


def _options(ctx: click.Context) -> list[tuple[str, str]]:
    """Names and meaning as `--help` has them, with the home folder as ~."""
    help_option, home = ctx.command.get_help_option(ctx), str(Path.home())
    records = (option.get_help_record(ctx) for option in ctx.command.get_params(ctx) if option is not help_option)
    return [(code(names), plain(meaning.replace(home, "~"))) for names, meaning in filter(None, records) if meaning]


def _text(help: str) -> str:
    """click's help text as Markdown: paragraphs, and what it may not rewrap as a block."""
    paragraphs = inspect.cleandoc(help).split("\f")[0].strip().split("\n\n")
    return "\n\n".join(
        "```text\n" + part.removeprefix("\b\n") + "\n```" if part.startswith("\b\n") else plain(part)
        for part in paragraphs
    )


def _link(ctx: click.Context) -> str:
    return f"[`{ctx.command_path}`](#{ctx.command_path.replace(' ', '-')})"
