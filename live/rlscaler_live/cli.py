"""The `rlscaler` command. A subcommand is imported only when it is called.

So `rlscaler --help` is quick, and an operator image without torch or locust still has a working command line. Other
distributions add commands through the entry point group `rlscaler.commands`, as the development tools do.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.metadata import entry_points, requires, version
from typing import Any, ClassVar, NamedTuple

import click
from click.shell_completion import CompletionItem, get_completion_class

INTERRUPTED = 130

EXIT_CODES = {
    "0": "It is done, or what was checked is in order.",
    "1": "It failed, or something that was checked is wrong: a cluster, a file, a process, a decision.",
    "2": "The call is wrong: an option, or a file that an option names (configuration, policy, model, history).",
    "3": "It is done, and the answer is no: a policy not worth publishing, an invalid comparison, decisions that "
    "cannot be taken again.",
    "128 + n": "Signal n ended it: 130 after Ctrl-C, 143 after SIGTERM.",
}
"""What the exit codes of all commands mean."""

GROUP = "rlscaler.commands"
"""Entry points of this group are commands that other distributions add."""


class Lazy(NamedTuple):
    """A command that is not imported yet."""

    summary: str
    """One line for `--help`, which must not import the command itself."""
    load: Callable[[], click.Command]


def _operator() -> click.Command:
    from rlscaler_operator.cli.operator import operator

    return operator


def _status() -> click.Command:
    from rlscaler_operator.cli.policies import status

    return status


def _explain() -> click.Command:
    from rlscaler_operator.cli.explain.command import explain

    return explain


def _init() -> click.Command:
    from rlscaler_operator.cli.init.command import init

    return init


def _preflight() -> click.Command:
    from rlscaler_operator.cli.preflight.command import preflight

    return preflight


def _simulate() -> click.Command:
    from rlscaler_rl.evaluation.days.history_cli import simulate

    return simulate


def _pause() -> click.Command:
    from rlscaler_operator.cli.policies import pause

    return pause


def _resume() -> click.Command:
    from rlscaler_operator.cli.policies import resume

    return resume


def _promote() -> click.Command:
    from rlscaler_operator.cli.policies import promote

    return promote


def _replay() -> click.Command:
    from rlscaler_operator.cli.replay.command import replay

    return replay


def _completion() -> click.Command:
    return completion


def _scheduler() -> click.Command:
    from rlscaler_live.scheduler_cli import scheduler

    return scheduler


def _service() -> click.Command:
    from rlscaler_loadgen.cli import service

    return service


def _load() -> click.Command:
    from rlscaler_loadgen.cli import load

    return load


def _train() -> click.Command:
    from rlscaler_live.train_cli import train

    return train


def _publish() -> click.Command:
    from rlscaler_rl.evaluation.service_tuning.publish import publish

    return publish


def _trace() -> click.Command:
    from rlscaler_rl.workloads.cli import trace

    return trace


def _evaluate() -> click.Command:
    from rlscaler_live.compare_cli import evaluate

    return evaluate


def _compare() -> click.Command:
    from rlscaler_live.compare_cli import compare

    return compare


def _card() -> click.Command:
    from rlscaler_live.compare_cli import card

    return card


def _days() -> click.Command:
    from rlscaler_rl.evaluation.days.cli import days

    return days


def _estimate() -> click.Command:
    from rlscaler_rl.evaluation.days.history_cli import estimate

    return estimate


def _streams() -> click.Command:
    from rlscaler_rl.evaluation.streams.cli import streams

    return streams


def _tenants() -> click.Command:
    from rlscaler_rl.tenants.cli import tenants

    return tenants


def _tune() -> click.Command:
    from rlscaler_rl.evaluation.tuning.cli import tune

    return tune


COMMANDS = {
    "card": Lazy("Write the model card of a network that was played on days.", _card),
    "compare": Lazy("Compare the policy with the other autoscalers on the same load.", _compare),
    "completion": Lazy("Print the completion script of a shell.", _completion),
    "days": Lazy("Compare policies and autoscalers on whole days of real load.", _days),
    "estimate": Lazy("Say what each autoscaler would have cost on a recorded load.", _estimate),
    "evaluate": Lazy("Evaluate a trained policy in simulation.", _evaluate),
    "explain": Lazy("Show why a decision came out as it did.", _explain),
    "init": Lazy("Write a policy in Shadow from what runs in the cluster.", _init),
    "load": Lazy("Generate load with Locust.", _load),
    "operator": Lazy("Run the operator.", _operator),
    "pause": Lazy("Hold the replicas of a policy.", _pause),
    "preflight": Lazy("Ask cluster and Prometheus for all that a policy needs.", _preflight),
    "promote": Lazy("Switch a policy from Shadow to Auto.", _promote),
    "publish": Lazy("Put a policy that was trained for one service into a ConfigMap.", _publish),
    "replay": Lazy("Take the recorded decisions again and compare.", _replay),
    "resume": Lazy("Let a paused policy scale again.", _resume),
    "scheduler": Lazy("Suggest nodes to kube-scheduler; train, compare and replay what suggests them.", _scheduler),
    "service": Lazy("Run the emulated inference service.", _service),
    "simulate": Lazy("Play a policy on a recorded load beside the HPA as it is.", _simulate),
    "status": Lazy("Show what the policies see and do.", _status),
    "streams": Lazy("Simulate the consumers of a Kafka topic under the forecast rule and KEDA.", _streams),
    "tenants": Lazy("Play services that share a pool of GPUs, compare arbiters, and train one.", _tenants),
    "trace": Lazy("List, import and cut recorded loads.", _trace),
    "train": Lazy("Train a policy with PPO, for all services or (--for) for one.", _train),
    "tune": Lazy("Find the best settings of the autoscalers that policies are compared with.", _tune),
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
    ),
    "Train": ("card", "compare", "days", "evaluate", "publish", "tenants", "trace", "train", "tune"),
    "Operate": ("operator", "replay", "scheduler"),
}
"""Headings of `--help` and their commands."""

REST = "Develop"
"""Heading of every other command, among them those of other distributions."""


def extra_with(package: str) -> str | None:
    """The first extra of rlscaler that installs an importable package, 'train' for 'torch'; None when none does."""
    for line in requires("rlscaler") or ():
        optional = re.match(r"([\w-]+).*; extra == '(\w+)'", line)
        if optional and optional[1].replace("-", "_") == package:
            return optional[2]
    return None


class LazyGroup(click.Group):
    """A click group whose commands are imported when they are called."""

    sections: ClassVar[Mapping[str, tuple[str, ...]]] = SECTIONS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*COMMANDS, *(point.name for point in entry_points(group=GROUP))])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if lazy := COMMANDS.get(cmd_name):
            return lazy.load()
        found = list(entry_points(group=GROUP, name=cmd_name))
        command: click.Command | None = found[0].load() if found else None
        return command

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
            if (extra := extra_with(package)) is None:
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
    """Scale the GPU and CPU replicas of a service together with a trained policy."""
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
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"this release of click knows no completion for {shell}")
    click.echo(found(main, {}, "rlscaler", "_RLSCALER_COMPLETE").source())


if __name__ == "__main__":
    main()
