"""The `rlscaler` command. A subcommand is imported only when it is called.

So `rlscaler --help` is quick, and an operator image without torch or locust still has a working command line. Other
distributions add commands through the entry point group `rlscaler.commands`, as the development tools do.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points, requires, version
from typing import Any, ClassVar, NamedTuple

import click
from click.shell_completion import CompletionItem, get_completion_class

INTERRUPTED = 130

EXIT_CODES = {
    "0": "The command succeeded, or the check passed.",
    "1": "The command failed, or the check found an error in a cluster, a file, a process or a decision.",
    "2": "The call is wrong: an option, or a file that an option names (configuration, policy, model, history).",
    "3": "The command succeeded, and the answer is no: a policy not worth publishing, an invalid comparison, decisions "
    "that cannot be taken again.",
    "128 + n": "Signal n ended it: 130 after Ctrl-C, 143 after SIGTERM.",
}
"""Meaning of the exit codes of all commands."""

GROUP = "rlscaler.commands"
"""Entry points of this group are commands that other distributions add."""


class Lazy(NamedTuple):
    """A command that is imported only when it is called."""

    target: str
    """`module:attribute`, as in an entry point."""

    summary: str
    """One line for `--help`, which must not import the command."""


COMMANDS = {
    "compare": Lazy(
        "rlscaler_live.compare_cli:compare", "Compare the policy with the other autoscalers on the same load."
    ),
    "completion": Lazy("rlscaler_live.cli:completion", "Print the completion script of a shell."),
    "days": Lazy(
        "rlscaler_rl.evaluation.days.cli:days", "Compare policies and autoscalers on whole days of real load."
    ),
    "estimate": Lazy(
        "rlscaler_rl.evaluation.days.history_cli:estimate",
        "Show the cost of each autoscaler on a recorded load.",
    ),
    "evaluate": Lazy("rlscaler_live.compare_cli:evaluate", "Evaluate a trained policy in simulation."),
    "explain": Lazy("rlscaler_operator.cli.explain.explain:explain", "Explain a decision."),
    "init": Lazy("rlscaler_operator.cli.init.init:init", "Write a policy in Shadow for a service of the cluster."),
    "load": Lazy("rlscaler_loadgen.cli:load", "Generate load with Locust."),
    "operator": Lazy("rlscaler_operator.cli.operator:operator", "Run the operator."),
    "pause": Lazy("rlscaler_operator.cli.policies:pause", "Hold the replicas of a policy."),
    "preflight": Lazy(
        "rlscaler_operator.cli.preflight.preflight:preflight",
        "Check that cluster and Prometheus have all that a policy needs.",
    ),
    "promote": Lazy("rlscaler_operator.cli.policies:promote", "Switch a policy from Shadow to Auto."),
    "publish": Lazy(
        "rlscaler_rl.evaluation.service_tuning.publish:publish",
        "Put a policy that was trained for one service into a ConfigMap.",
    ),
    "replay": Lazy("rlscaler_operator.cli.replay.replay:replay", "Take the recorded decisions again and compare."),
    "resume": Lazy("rlscaler_operator.cli.policies:resume", "Let a paused policy scale again."),
    "scheduler": Lazy(
        "rlscaler_live.scheduler_cli:scheduler",
        "Suggest nodes to kube-scheduler; train, compare and replay its networks.",
    ),
    "service": Lazy("rlscaler_loadgen.cli:service", "Run the emulated inference service."),
    "simulate": Lazy(
        "rlscaler_rl.evaluation.days.history_cli:simulate", "Play a policy on a recorded load beside the HPA as it is."
    ),
    "status": Lazy("rlscaler_operator.cli.policies:status", "Show observations and decisions of the policies."),
    "streams": Lazy(
        "rlscaler_rl.evaluation.streams.cli:streams",
        "Simulate the consumers of a Kafka topic under the forecast rule and KEDA.",
    ),
    "tenants": Lazy(
        "rlscaler_rl.tenants.cli:tenants", "Play services that share a pool of GPUs, compare arbiters, and train one."
    ),
    "tokens": Lazy("rlscaler_rl.evaluation.tokens.cli:tokens", "Simulate servers of language models by their tokens."),
    "trace": Lazy("rlscaler_rl.workloads.cli:trace", "List, import and cut recorded loads."),
    "train": Lazy("rlscaler_live.train_cli:train", "Train a policy with PPO, for all services or (--for) for one."),
    "tune": Lazy(
        "rlscaler_rl.evaluation.tuning.cli:tune",
        "Find the best settings of the autoscalers that policies are compared with.",
    ),
    "ui": Lazy("rlscaler_live.ui.cli:ui", "Show all policies on a local page, live and read-only."),
}


SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Use": (
        "completion",
        "estimate",
        "explain",
        "init",
        "pause",
        "preflight",
        "promote",
        "resume",
        "simulate",
        "status",
        "streams",
        "tokens",
        "ui",
    ),
    "Train": ("compare", "days", "evaluate", "publish", "tenants", "trace", "train", "tune"),
    "Operate": ("operator", "replay", "scheduler"),
}
"""Headings of `--help` and their commands."""

REST = "Develop"
"""Heading of every other command, among them those of other distributions."""


WITHOUT_TORCH = ("days", "estimate", "simulate")
"""Commands for which the extra `estimate` is enough."""


def extra_with(package: str, command: str = "") -> str | None:
    """Return the extra of rlscaler that installs an importable package for a command; None where none does."""
    lines = [re.match(r"([\w-]+).*; extra == ['\"](\w+)['\"]", line) for line in requires("rlscaler") or ()]
    extras = [line[2] for line in lines if line and line[1].replace("-", "_") == package]
    if command in WITHOUT_TORCH and "estimate" in extras:
        return "estimate"
    return next((extra for extra in extras if extra != "estimate"), None)


class LazyGroup(click.Group):
    """A click group whose commands are imported when they are called."""

    sections: ClassVar[Mapping[str, tuple[str, ...]]] = SECTIONS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*COMMANDS, *(point.name for point in entry_points(group=GROUP))])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if lazy := COMMANDS.get(cmd_name):
            return EntryPoint(cmd_name, lazy.target, GROUP).load()
        return next((point.load() for point in entry_points(group=GROUP, name=cmd_name)), None)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands with their summaries, also of those whose packages are not installed."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items = [CompletionItem(name, help=self._summary(ctx, name)) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; raises ClickException naming the extra when a package of an extra is not installed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if (extra := extra_with(package, ctx.invoked_subcommand or "")) is None:
                raise
            raise click.ClickException(
                f"this needs the package {package!r}: `make install` in a clone of rlscaler, or "
                f"`pip install '.[{extra}]'` there"
            ) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        unknown = args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing
        if unknown and (close := get_close_matches(args[0], names)):
            ctx.fail(f"No such command {args[0]!r}: did you mean {' or '.join(close)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        placed = {name for chosen in self.sections.values() for name in chosen}
        rest = tuple(name for name in names if name not in placed)
        for heading, chosen in {**self.sections, REST: rest}.items():
            if rows := [(name, self._summary(ctx, name)) for name in names if name in chosen]:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def _summary(self, ctx: click.Context, name: str) -> str:
        if name in COMMANDS:
            return COMMANDS[name].summary
        try:
            command = self.get_command(ctx, name)
        except ImportError as error:
            return f"(cannot be loaded: {error})"
        return command.get_short_help_str(limit=100) if command is not None else ""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("rlscaler"), prog_name="rlscaler")
def main() -> None:
    """Scale the GPU and CPU replicas of a service together, by a rule or a trained network."""
    if os.environ.get("RLSCALER_DEBUG"):
        logging.basicConfig(level=logging.DEBUG)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell; names of policies are asked of the cluster.

    \b
    rlscaler completion bash > /etc/bash_completion.d/rlscaler
    rlscaler completion zsh > "${fpath[1]}/_rlscaler"
    rlscaler completion fish > ~/.config/fish/completions/rlscaler.fish
    """
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.ClickException(f"this release of click knows no completion for {shell}")
    click.echo(completion_class(main, {}, "rlscaler", "_RLSCALER_COMPLETE").source())


if __name__ == "__main__":
    main()
