"""`rlscaler tokens`. Heavy imports wait until a command runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from rlscaler_core.options import FOLDER, PRESENT_FILE, fresh, names_in, output_option, writable
from rlscaler_rl.evaluation.tokens import SERVER_HELP, TABLE_WIDTH

if TYPE_CHECKING:
    from rlscaler_rl.evaluation.tokens.own import LoadOf

_SECONDS = click.FloatRange(0, 3600, min_open=True)

_server = click.option("--server", required=True, help=SERVER_HELP)
_mix = click.option(
    "--mix", default="chat", show_default=True, help="Kinds of requests with their shares, as in chat=0.7,code=0.3."
)

_history = click.option("--history", type=PRESENT_FILE, help="CSV of requests/s, as `rlscaler trace import` writes it.")
_trace = click.option(
    "--trace",
    type=PRESENT_FILE,
    help="CSV of requests: TIMESTAMP,ContextTokens,GeneratedTokens; in place of --history.",
)

DO_NOT_PUBLISH = 3
"""Exit code of a training for one service whose network is not shown to be ahead of the rule."""


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
    from rlscaler_rl.evaluation.tokens.load import mix_of, server_of, weighed

    weights, (usual, *_) = weighed(server_of(server), first, token, mix_of(mix))
    click.echo(f"# {usual.per_second:.3g} requests/s of {usual.prompt:.0f} + {usual.answer:.0f} tokens a replica")
    click.echo(
        f"capacity: {{unit: tokens, tokenWeights: {{prompt: 1, answer: {weights.answer:.3g}}}, "
        f"perReplica: {{gpu: {weights.capacity:.4g}}}}}"
    )


@tokens.command()
@click.argument("policy", type=PRESENT_FILE)
@_history
@_trace
@_server
@_mix
@click.option("--model", help="Folder of a network that acts for the policy.  [default: the forecast rule]")
@output_option
def simulate(
    policy: Path, history: Path | None, trace: Path | None, server: str, mix: str, model: str | None, output: str
) -> None:
    """Play a policy in tokens with signal ttft, the file POLICY, on a recorded load beside KEDA and WVA.

    \b
    rlscaler tokens simulate chat.yaml --history load.csv --server 8b-l40s --mix chat
    rlscaler tokens simulate chat.yaml --trace requests.csv --server 8b-l40s
    """
    from rlscaler_rl.evaluation.models import load_for_tokens
    from rlscaler_rl.evaluation.tokens.load import LONGEST_SECONDS, server_of
    from rlscaler_rl.evaluation.tokens.single import simulated
    from rlscaler_rl.results.document import progress, show_table

    load = _load(history, trace, mix, LONGEST_SECONDS)
    loaded = load_for_tokens(model) if model else None
    with progress(output) as tell:
        result = simulated(policy, load, server_of(server), tell, model=loaded)
    show_table(result, result.table(), [], output, TABLE_WIDTH)


@tokens.command()
@click.option("--kubeconfig", type=PRESENT_FILE, help="Of the cluster.  [default: of the pod that this runs in]")
@click.option("--namespace", default="default", show_default=True)
@click.option("--deployment", required=True, help="Deployment whose pods are played.")
@click.option("--server", default="8b-a100", show_default=True, help=SERVER_HELP)
@click.option("--duration", "seconds", type=click.IntRange(30, 86_400), default=420, show_default=True, help="Of load.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True)
@click.option("--max-replicas", "most", type=click.IntRange(1, 200), default=16, show_default=True)
@click.option("--metrics-port", type=click.IntRange(0, 65_535), default=9400, show_default=True)
@click.option(
    "--begin", type=click.Path(path_type=Path), help="Begin the load once this file exists.  [default: at once]"
)
@click.option("--out", type=FOLDER, callback=writable, default=Path("results/emulated"), show_default=True)
def emulate(**options: Any) -> None:
    """Stand for the pods of a Deployment as vLLM servers, in real time, under a load whose mix drifts and surges.

    Pods that no kubelet runs will do. Series of vLLM for every ready pod are served on --metrics-port; facts.json has
    the numbers of the usual mix that a policy declares, and outcomes.csv each request at the end.

    \b
    rlscaler tokens emulate --kubeconfig kind.yaml --namespace workloads --deployment chat
    """
    import asyncio

    from rlscaler_loadgen.errors import LoadgenError
    from rlscaler_rl.evaluation.tokens.emulated.serve import Emulation, emulate
    from rlscaler_rl.evaluation.tokens.load import server_of
    from rlscaler_rl.simulation.scenario import ScenarioError

    server, kubeconfig = server_of(options.pop("server")), options.pop("kubeconfig")
    this = Emulation(kubeconfig=kubeconfig and str(kubeconfig), server=server, **options)
    try:
        asyncio.run(emulate(this))
    except (LoadgenError, ScenarioError) as error:
        raise click.ClickException(str(error)) from error


@tokens.command()
@click.argument("url")
@click.option("--model", help="Model of the server.  [default: the first that it lists]")
@click.option(
    "--mixes",
    default="700+20,100+100,300+60",
    show_default=True,
    help="Mean tokens of prompt + answer; the constants are found without the last mix, and checked on it.",
)
@click.option("--requests", type=click.IntRange(20, 10_000), default=60, show_default=True, help="Of each load test.")
@click.option(
    "--sequences", type=click.IntRange(1, 1024), default=256, show_default=True, help="vLLM's --max-num-seqs."
)
@click.option(
    "--batched-tokens",
    type=click.IntRange(2, 1_000_000),
    default=2048,
    show_default=True,
    help="vLLM's --max-num-batched-tokens.",
)
@click.option(
    "--kv-tokens",
    type=click.IntRange(100, 2_000_000_000),
    help="Tokens of the KV cache.  [default: by the metrics of the server]",
)
@click.option("--out", type=FOLDER, callback=writable, default=Path("results/calibration"), show_default=True)
@click.option("--resume", is_flag=True, help="Take up after the load tests in measurements.json of --out.")
@output_option
def calibrate(
    url: str,
    model: str | None,
    mixes: str,
    requests: int,
    sequences: int,
    batched_tokens: int,
    kv_tokens: int | None,
    out: Path,
    resume: bool,
    output: str,
) -> None:
    """Find the constants of the model server at URL by load tests, as a --server of the other commands.

    The server has to be alone with the load: each mix is sent at 20, 50 and 80 % of the requests/s that it
    answers at most, and all at once. Where the command fails, its load tests until then are in measurements.json
    of --out; repeat it with --resume.

    \b
    rlscaler tokens calibrate http://127.0.0.1:8000
    rlscaler tokens weights --server results/calibration/calibration.json
    """
    from rlscaler_rl.evaluation.tokens import calibrate as calibration
    from rlscaler_rl.evaluation.tokens.client import kv_tokens as cache_of
    from rlscaler_rl.evaluation.tokens.client import target
    from rlscaler_rl.results.document import print_table, progress, write
    from rlscaler_rl.simulation.tokens.servers import Server

    if batched_tokens <= sequences:
        raise click.UsageError(f"--batched-tokens {batched_tokens} must be above --sequences {sequences}")
    chosen, server = calibration.mixes_of(mixes), target(url, model)
    cache = kv_tokens or cache_of(server.url)
    source = "measured by `rlscaler tokens calibrate`"
    limits = Server(server.model, 1.0, 1.0, 1.0, 1.0, cache, batched_tokens, sequences, source)
    with progress(output) as tell:
        file = out / "measurements.json"
        result = calibration.calibrated(server, limits, chosen, requests, tell, file, resume)
    table = result.table()
    write(result, [f"# {table.title}", "", *table.markdown(), "", *result.notes()], out, "calibration")
    calibration.draw(result, out / "calibration.png")
    if output == "json":
        click.echo(result.json_text())
    else:
        notes = [*result.notes(), f"{out}/calibration.json is a --server of `rlscaler tokens`"]
        print_table(table, notes, width=TABLE_WIDTH)


@tokens.command()
@click.option("--for", "policy", type=PRESENT_FILE, help="Train for one service, the YAML of a policy in tokens.")
@_history
@_trace
@click.option("--server", help=f"With --for: {SERVER_HELP}")
@_mix
@click.option("--seed", type=click.IntRange(0, 99), default=1, show_default=True, help="Of services and network.")
@click.option(
    "--steps",
    type=click.IntRange(1),
    help="Action intervals of all services.  [default: 400,000; 1,000,000 with --for]",
)
@click.option("--out", type=FOLDER, callback=writable, required=True, help="Folder for policy and manifest.")
@click.option("--force", is_flag=True, help="Overwrite the network in --out.")
def train(
    policy: Path | None,
    history: Path | None,
    trace: Path | None,
    server: str | None,
    mix: str,
    seed: int,
    steps: int | None,
    out: Path,
    force: bool,
) -> None:
    """Train a network for token services with PPO, at the token level of the simulator.

    Its steps move a lasting headroom in the forecast rule's plan. A policy in tokens with signal ttft uses it by
    spec.policy.configMap, as `rlscaler publish` writes it. Without --for it is trained on drawn services.

    With --for the earlier half of the load, two hours of it or more, trains a network for that service, the third
    quarter chooses a checkpoint, and the last quarter judges it against the rule, with declared capacities up to 25 %
    off, where the policy declares one: exit code 0 = publish, 3 = do not publish.

    \b
    rlscaler tokens train --seed 1 --out rl/tokens_1
    rlscaler tokens compare --model rl/tokens_1
    rlscaler tokens train --for chat.yaml --trace requests.csv --server 8b-l40s --out rl/chat
    """
    from rlscaler_rl.training.tokens import STEPS, Options
    from rlscaler_rl.training.tokens import train as trained

    if policy is None:
        mixed = click.get_current_context().get_parameter_source("mix") is ParameterSource.COMMANDLINE
        if mixed or any(option is not None for option in (history, trace, server)):
            raise click.UsageError("--history, --trace, --server and --mix: only with --for, which names the policy")
        fresh(out / "policy.onnx", force)
        click.echo(trained(Options(seed=seed, steps=steps or STEPS), out, click.echo))
        return
    from rlscaler_rl.evaluation.tokens import own_network
    from rlscaler_rl.evaluation.tokens.load import server_of
    from rlscaler_rl.evaluation.tokens.own import OwnService
    from rlscaler_rl.results.document import print_table

    if server is None:
        raise click.UsageError("--for: name the model server in --server")
    fresh(out / "policy.onnx", force)
    load = _load(history, trace, mix, own_network.LONGEST_SECONDS, own_network.KNOWN)
    options = Options(seed=seed, steps=steps or own_network.STEPS)
    service = OwnService.read(policy, load, server_of(server))
    verdict = own_network.train_for(service, options, out, click.echo)
    notes = [*verdict.reasons, f"{out}: {'publish' if verdict.publish else 'do not publish'}"]
    print_table(verdict.table(), notes, TABLE_WIDTH)
    click.get_current_context().exit(0 if verdict.publish else DO_NOT_PUBLISH)


def _load(history: Path | None, trace: Path | None, mix: str, longest: int, known: float = 1.0) -> LoadOf:
    """Return the load that the options name. Raises UsageError where they name none, or two."""
    from rlscaler_rl.evaluation.tokens.load import of_rates, of_requests

    if trace is not None and history is None:
        if click.get_current_context().get_parameter_source("mix") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--trace has lengths of its own; remove --mix")
        return partial(of_requests, trace, longest=longest, known=known)
    if history is not None and trace is None:
        return partial(of_rates, history, mix, longest=longest)
    raise click.UsageError("choose either --history, a load in requests/s, or --trace, a log of requests")


@tokens.command()
@click.option(
    "--trace",
    type=PRESENT_FILE,
    help="CSV of requests: TIMESTAMP,ContextTokens,GeneratedTokens; its end is played in place of drawn requests.",
)
@click.option(
    "--times",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Requests for each one of --trace, as of a larger service.",
)
@click.option(
    "--loads",
    help="Names of the library of days by commas, or `all` that are there: a service for each, on a real day of it.",
)
@click.option("--services", type=click.IntRange(3, 200), default=12, show_default=True, help="Services that judge.")
@click.option("--minutes", type=click.IntRange(10, 1440), default=120, show_default=True, help="Load of each, at most.")
@click.option("--trials", type=click.IntRange(1, 500), default=24, show_default=True, help="Settings that are tried.")
@click.option("--seed", type=click.IntRange(0, 900), default=1, show_default=True)
@click.option("--model", "models", multiple=True, help="Folder of a network of `train`, judged beside; repeatable.")
@click.option("--out", type=FOLDER, callback=writable, default=Path("results/tokens"), show_default=True)
@output_option
def compare(
    trace: Path | None,
    times: int,
    loads: str | None,
    services: int,
    minutes: int,
    trials: int,
    seed: int,
    models: tuple[str, ...],
    out: Path,
    output: str,
) -> None:
    """Judge autoscalers on token services with declared capacities up to 25 % off, tuned alike on other services.

    The policy as it comes and networks are not tuned.
    With --trace settings are tuned on the earlier half of the log and judged on the later one; with --loads on the
    busiest hours of a day, six at most, and judged on the next day.

    \b
    rlscaler tokens compare --trace requests.csv --times 4
    rlscaler tokens compare --loads balancer,bikes,taxi --minutes 1440
    """
    from rlscaler_rl.evaluation.models import load_for_tokens
    from rlscaler_rl.evaluation.tokens.compare import compared, drawn_worlds
    from rlscaler_rl.evaluation.tokens.contenders import ENTRIES, network
    from rlscaler_rl.evaluation.tokens.library import with_days
    from rlscaler_rl.evaluation.tokens.library import worlds as on_days
    from rlscaler_rl.evaluation.tokens.recorded import worlds
    from rlscaler_rl.results.document import progress, show_table, write

    if trace is None and times > 1:
        raise click.UsageError("--times repeats the requests of --trace; name a log, or remove it")
    names = None if loads is None else with_days(names_in("--loads", loads))
    if names is not None:
        source = click.get_current_context().get_parameter_source("services")
        if trace is not None or source is ParameterSource.COMMANDLINE:
            raise click.UsageError("--loads brings days and a service for each; remove --trace and --services")
        both, load = partial(on_days, names, 60 * minutes, seed), "days of the library"
    elif trace is not None:
        both, load = partial(worlds, trace, services, 60 * minutes, times, seed), f"{trace.name} x {times}"
    else:
        both, load = partial(drawn_worlds, services, 60 * minutes, seed), "drawn requests"
    entries = [ENTRIES[0], *(network(load_for_tokens(model)) for model in models), *ENTRIES[1:]]
    with progress(output) as tell:
        result = compared(both, load, trials, seed, tell, entries).model_copy(update={"loads": names})
    table = result.table()
    write(result, [f"# {table.title}", "", *table.markdown(), "", *result.notes()], out, "comparison")
    notes = [*result.notes(), f"{out}/comparison.json has the settings and J of each service"]
    show_table(result, table, notes, output, TABLE_WIDTH)
