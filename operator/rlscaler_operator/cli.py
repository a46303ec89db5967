"""The `rlscaler` command: a group whose subcommands are found through entry points.

Each package registers its own commands under `rlscaler.commands`; only the one that is called is imported, so
`rlscaler --help` is quick and an operator image without torch or locust still has a working command line.
"""

from __future__ import annotations

import logging
import os
from importlib.metadata import EntryPoint, entry_points, version

import click

GROUP = "rlscaler.commands"

SUMMARY = {
    "ablate": "Measure what each part of the training is worth.",
    "card": "Write the model card of a policy that was compared.",
    "chart": "Generate files of the Helm charts or check them for drift.",
    "cluster": "Start, stop and inspect a local Kubernetes control plane.",
    "compare": "Compare the policy with the other autoscalers on the same load.",
    "completion": "Print the completion script of a shell.",
    "crd": "Generate the CustomResourceDefinition or check it for drift.",
    "dashboard": "Check or draw a Grafana dashboard with the data of a live Prometheus.",
    "demo": "Run the whole product on a local control plane under load.",
    "docs": "Generate the reference pages of the documentation or check them for drift.",
    "e2e": "Install the charts on a real node, load them, and take them away again.",
    "evaluate": "Evaluate a trained policy in simulation.",
    "explain": "Show why a decision came out as it did.",
    "load": "Generate load with Locust.",
    "operator": "Run the operator.",
    "pause": "Hold the replicas of a policy.",
    "promote": "Switch a policy from Shadow to Auto.",
    "publish": "Put a policy that was trained for one service into a ConfigMap.",
    "replay": "Take the recorded decisions again and compare.",
    "resume": "Let a paused policy scale again.",
    "service": "Run the emulated inference service.",
    "status": "Show what the policies see and do.",
    "trace": "List, import and cut recorded loads.",
    "train": "Train a policy with PPO, for all services or (--for) for one.",
    "tune": "Find the best settings of the autoscalers that policies are compared with.",
}
"""One line per command for `--help`, which must not import the commands themselves."""

EXTRA = {
    "ablate": "train,ray",
    "card": "train",
    "cluster": "cluster",
    "compare": "train",
    "dashboard": "cluster,train",
    "demo": "cluster,load,train",
    "e2e": "cluster,load,train",
    "evaluate": "train",
    "load": "load",
    "publish": "train",
    "service": "load",
    "trace": "train",
    "train": "train",
    "tune": "train",
}
"""The optional dependencies that a command needs, named when one of them is missing."""


class EntryPointGroup(click.Group):
    """A click group that loads a subcommand from its entry point only when it is called."""

    def _found(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=GROUP)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._found())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        point = self._found().get(cmd_name)
        if point is None:
            return None
        try:
            command: click.Command = point.load()
        except ModuleNotFoundError as error:
            extra = EXTRA.get(cmd_name)
            if extra is None or (error.name or "").startswith("rlscaler"):
                raise
            raise click.ClickException(
                f"'rlscaler {cmd_name}' needs the package '{error.name}': pip install 'rlscaler[{extra}]'"
            ) from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUMMARY.get(name, "")) for name in self.list_commands(ctx)])


@click.group(cls=EntryPointGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("rlscaler"), prog_name="rlscaler")
def main() -> None:
    """Scale the GPU and CPU replicas of a service together with a trained policy."""
    if os.environ.get("RLSCALER_DEBUG"):
        logging.basicConfig(level=logging.DEBUG)


if __name__ == "__main__":
    main()
