"""`rlscaler tokens`. Heavy imports wait until a command runs."""

from __future__ import annotations

from pathlib import Path

import click

from rlscaler_core.options import FOLDER, PRESENT_FILE, output_option, writable

_SECONDS = click.FloatRange(0, 3600, min_open=True)

_server = click.option(
    "--server",
    type=click.Choice(["8b-l40s", "8b-a100", "8b-2xa100", "70b-8xh100"]),
    required=True,
    help="Preset of a model on a GPU.",
)
_mix = click.option(
    "--mix", default="chat", show_default=True, help="Kinds of requests with their shares, as in chat=0.7,code=0.3."
)


@click.group()
def tokens() -> None:
    """Simulate servers of language models: weights of tokens, a policy on a recorded load, autoscalers compared."""


@tokens.command()
@_server
@_mix
@click.option("--ttft", "first", type=_SECONDS, default=2.5, show_default=True, help="Objective of the first token.")
@click.option(
    "--tpot", "token", type=_SECONDS, default=0.15, show_default=True, help="Objective of a token in seconds."
)
def weights(server: str, mix: str, first: float, token: float) -> None:
    """Find the weights of prompt and answer tokens by simulated load tests, as fields of a policy.

    \b
    rlscaler tokens weights --server 8b-l40s --mix chat=0.7,code=0.3
    """
    from rlscaler_rl.evaluation.tokens.single import mix_of, weighed

    weights, usual, _ = weighed(server, mix_of(mix), first, token)
    click.echo(f"# {usual.per_second:.3g} requests/s of {usual.prompt:.0f} + {usual.answer:.0f} tokens a replica")
    click.echo(
        f"capacity: {{unit: tokens, tokenWeights: {{prompt: 1, answer: {weights.answer:.3g}}}, "
        f"perReplica: {{gpu: {weights.capacity:.4g}}}}}"
    )


@tokens.command()
@click.argument("policy", type=PRESENT_FILE)
@click.option(
    "--history", type=PRESENT_FILE, required=True, help="CSV of requests/s, as `rlscaler trace import` writes it."
)
@_server
@_mix
@output_option
def simulate(policy: Path, history: Path, server: str, mix: str, output: str) -> None:
    """Play the RLScalingPolicy in the file POLICY on a recorded load beside KEDA; its unit is tokens, its signal ttft.

    \b
    rlscaler tokens simulate chat.yaml --history load.csv --server 8b-l40s --mix chat
    """
    from rlscaler_rl.evaluation.tokens.single import simulated
    from rlscaler_rl.results.document import progress, show_table

    with progress(output) as tell:
        result = simulated(policy, history, server, mix, tell)
    show_table(result, result.table(), [], output)


@tokens.command()
@click.option("--services", type=click.IntRange(3, 200), default=12, show_default=True, help="Drawn services.")
@click.option("--minutes", type=click.IntRange(10, 720), default=120, show_default=True, help="Load of each.")
@click.option("--trials", type=click.IntRange(1, 500), default=24, show_default=True, help="Settings that are tried.")
@click.option("--seed", type=click.IntRange(0, 900), default=1, show_default=True)
@click.option("--out", type=FOLDER, callback=writable, default=Path("results/tokens"), show_default=True)
@output_option
def compare(services: int, minutes: int, trials: int, seed: int, out: Path, output: str) -> None:
    """Tune autoscalers alike on drawn token services and judge them on others, with declared capacities 25 % off."""
    from rlscaler_rl.evaluation.tokens.compare import compared
    from rlscaler_rl.results.document import progress, show_table, write

    with progress(output) as tell:
        result = compared(services, 60 * minutes, trials, seed, tell)
    table = result.table()
    write(result, [f"# {table.title}", "", *table.markdown()], out, "comparison")
    show_table(result, table, [f"{out}/comparison.json has the settings and J of each service"], output)
