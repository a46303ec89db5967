"""The `rlscaler` command. A subcommand is imported only when it is called.

So `rlscaler --help` is quick, and an operator image without torch or locust still has a working command line. Other
distributions add commands through the entry point group `rlscaler.commands`, as the development tools do.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib.metadata import entry_points, version
from typing import NamedTuple

import click

GROUP = "rlscaler.commands"
"""Entry points of this group are commands that other distributions add."""


class Lazy(NamedTuple):
    """A command that is not imported yet."""

    summary: str
    """One line for `--help`, which must not import the command itself."""
    load: Callable[[], click.Command]
    extra: str | None = None
    """The optional dependencies that the command needs, named when one of them is missing."""


def _operator() -> click.Command:
    from rlscaler_operator.cli.operator import operator

    return operator


def _status() -> click.Command:
    from rlscaler_operator.cli.status import status

    return status


def _explain() -> click.Command:
    from rlscaler_operator.cli.explain.command import explain

    return explain


def _pause() -> click.Command:
    from rlscaler_operator.cli.change import pause

    return pause


def _resume() -> click.Command:
    from rlscaler_operator.cli.change import resume

    return resume


def _promote() -> click.Command:
    from rlscaler_operator.cli.change import promote

    return promote


def _replay() -> click.Command:
    from rlscaler_operator.cli.replay.command import replay

    return replay


def _completion() -> click.Command:
    from rlscaler_live.completion import completion

    return completion


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


def _tune() -> click.Command:
    from rlscaler_rl.evaluation.tuning.cli import tune

    return tune


COMMANDS = {
    "card": Lazy("Write the model card of a policy that was compared.", _card, "train"),
    "compare": Lazy("Compare the policy with the other autoscalers on the same load.", _compare, "train"),
    "completion": Lazy("Print the completion script of a shell.", _completion),
    "evaluate": Lazy("Evaluate a trained policy in simulation.", _evaluate, "train"),
    "explain": Lazy("Show why a decision came out as it did.", _explain),
    "load": Lazy("Generate load with Locust.", _load, "load"),
    "operator": Lazy("Run the operator.", _operator),
    "pause": Lazy("Hold the replicas of a policy.", _pause),
    "promote": Lazy("Switch a policy from Shadow to Auto.", _promote),
    "publish": Lazy("Put a policy that was trained for one service into a ConfigMap.", _publish, "train"),
    "replay": Lazy("Take the recorded decisions again and compare.", _replay),
    "resume": Lazy("Let a paused policy scale again.", _resume),
    "service": Lazy("Run the emulated inference service.", _service, "load"),
    "status": Lazy("Show what the policies see and do.", _status),
    "trace": Lazy("List, import and cut recorded loads.", _trace, "train"),
    "train": Lazy("Train a policy with PPO, for all services or (--for) for one.", _train, "train"),
    "tune": Lazy("Find the best settings of the autoscalers that policies are compared with.", _tune, "train"),
}


class LazyGroup(click.Group):
    """A click group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*COMMANDS, *(point.name for point in entry_points(group=GROUP))])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if (lazy := COMMANDS.get(cmd_name)) is None:
            found = list(entry_points(group=GROUP, name=cmd_name))
            command: click.Command | None = found[0].load() if found else None
            return command
        try:
            return lazy.load()
        except ModuleNotFoundError as error:
            if lazy.extra is None or (error.name or "").startswith("rlscaler"):
                raise
            raise click.ClickException(
                f"'rlscaler {cmd_name}' needs the package '{error.name}': pip install 'rlscaler[{lazy.extra}]'"
            ) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._summary(ctx, name)) for name in self.list_commands(ctx)])

    def _summary(self, ctx: click.Context, name: str) -> str:
        if name in COMMANDS:
            return COMMANDS[name].summary
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=100) if command is not None else ""


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("rlscaler"), prog_name="rlscaler")
def main() -> None:
    """Scale the GPU and CPU replicas of a service together with a trained policy."""
    if os.environ.get("RLSCALER_DEBUG"):
        logging.basicConfig(level=logging.DEBUG)


if __name__ == "__main__":
    main()
