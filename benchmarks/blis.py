"""The token level of the simulator beside BLIS, in place of a server.

BLIS (https://github.com/inference-sim/inference-sim, Apache-2.0) simulates vLLM; its times of iterations were fitted to
GPUs. It stands for the server of `rlscaler tokens calibrate`: constants are found on two mixes and checked on another,
and on conversations. With --server both have the same constants, and only the batching differs.

    (cd inference-sim && go build -o blis main.go)
    python -m benchmarks.blis inference-sim --model meta-llama/llama-3.1-8b-instruct --hardware H100 --tp 1
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click
import numpy as np

from rlscaler_core.decision.types import Float, Int
from rlscaler_core.options import FOLDER, writable
from rlscaler_rl.evaluation.tokens.calibrate import Mix, calibrated, compared, load_tests, measurements, mixes_of
from rlscaler_rl.evaluation.tokens.cli import TABLE_WIDTH
from rlscaler_rl.evaluation.tokens.client import Sent
from rlscaler_rl.evaluation.tokens.measurements import Measured
from rlscaler_rl.results.document import print_table, progress, write
from rlscaler_rl.simulation.scenario import ScenarioError
from rlscaler_rl.simulation.tokens.demand import only
from rlscaler_rl.simulation.tokens.servers import SERVERS, Server
from rlscaler_rl.simulation.tokens.services import drawn_requests

BLOCK = 16
HORIZON = 10**15
HEADER = "trace_version: 3\ntime_unit: microseconds\nmode: generated\nwarm_up_requests: 0\n"
TEXTS = ("client_id", "tenant_id", "slo_class", "session_id", "prefix_group", "model")
OUTCOMES = ("status", "error_message", "finish_reason")
COLUMNS = (
    *("request_id", *TEXTS[:4], "round_index", "prefix_group", "prefix_length", "streaming", "input_tokens"),
    *("output_tokens", "text_tokens", "image_tokens", "audio_tokens", "video_tokens", "reason_ratio", "model"),
    *("deadline_us", "server_input_tokens", "arrival_time_us", "send_time_us", "first_chunk_time_us"),
    *("last_chunk_time_us", "num_chunks", *OUTCOMES),
)
"""Columns of BLIS's TraceV2, which are read by their places."""

CHAT, CHAT_SHARE, CHAT_SECONDS = "chat", 0.8, 100


class Blis(NamedTuple):
    """One instance of a model as BLIS simulates it."""

    folder: Path
    options: Sequence[str]

    @property
    def url(self) -> str:
        """Return the folder."""
        return str(self.folder)

    def send(self, at: Float, prompt: Int, answer: Int) -> Sent:
        """Replay requests, as `LoadTarget.send`. Raises ClickException naming the message of BLIS and the remedy."""
        return sent(at, prompt, answer, self.replay(at, prompt, answer)[0])

    def kv_tokens(self) -> int:
        """Return the tokens of the KV cache by BLIS's estimate of the GPU's memory."""
        blocks = re.search(r"with (\d+) KV blocks", self.replay(np.zeros(1), *np.full((2, 1), 2))[1])
        if blocks is None:
            raise click.ClickException(f"{self.folder}/blis logs no KV blocks; name their tokens with --kv-tokens")
        return BLOCK * int(blocks[1])

    def replay(self, at: Float, prompt: Int, answer: Int) -> tuple[list[dict[str, Any]], str]:
        """Return the results of BLIS with its log."""
        binary = self.folder.resolve() / "blis"
        with TemporaryDirectory() as name:
            header, trace, results = (Path(name) / file for file in ("trace.yaml", "trace.csv", "results.json"))
            header.write_text(HEADER, encoding="utf-8")
            write_trace(trace, at, prompt, answer)
            files = {"trace-header": header, "trace-data": trace, "results-path": results}
            given = [f"--{option}={path}" for option, path in files.items()]
            # By default BLIS ends at twice the last arrival, before all requests are answered.
            command = [str(binary), "replay", *given, f"--horizon={HORIZON}", "--log=info", *self.options]
            try:
                run = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
            except OSError as error:
                raise click.ClickException(f"{binary}: {error.strerror}; `go build -o blis main.go` there") from error
            if run.returncode:
                message = re.search(r'level=fatal msg=(".*")', run.stderr)
                text = json.loads(message[1]).splitlines()[0] if message else run.stderr.strip()[-300:]
                remedy = (
                    "take --hardware of hardware_config.json there, and --model as organisation/folder of model_configs"
                )
                raise click.ClickException(f"{binary}: {text.rstrip('.')}; {remedy}")
            return json.loads(results.read_text(encoding="utf-8")), run.stderr


def write_trace(path: Path, at: Float, prompt: Int, answer: Int) -> None:
    """Write requests at moments (M,) in seconds with tokens (M,) as the rows of a TraceV2."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, restval=0)
        writer.writeheader()
        empty = dict.fromkeys((*TEXTS, *OUTCOMES), "")
        for number, (moment, *lengths) in enumerate(zip(np.rint(1e6 * at).astype(int), prompt, answer, strict=True)):
            tokens = dict(zip(("input_tokens", "output_tokens"), lengths, strict=True))
            writer.writerow({"request_id": number, **empty, **tokens, "arrival_time_us": moment})


def sent(at: Float, prompt: Int, answer: Int, results: list[dict[str, Any]]) -> Sent:
    """Return the times of replayed requests. Raises ClickException where BLIS has not answered each of them."""
    if [row["request_id"] for row in results] != list(range(len(at))):
        raise click.ClickException(
            f"BLIS answered {len(results):,} of {len(at):,} requests; shorten the mixes, or name more --kv-tokens"
        )
    # `e2e_us` has work of the server after the last token, which no client sees.
    first, token = (np.array([row.get(name, np.nan) for row in results]) / 1e6 for name in ("ttft_us", "itl_mean_us"))
    return Sent(at, prompt, answer, first, np.where(answer > 1, token, np.nan))


def conversations(target: Blis, count: int) -> tuple[Mix, list[Measured]]:
    """Return load tests with lengths of conversations: all at once, and at `CHAT_SHARE`, under their mean lengths."""
    rates = np.full(CHAT_SECONDS, count / CHAT_SECONDS)
    drawn = drawn_requests([rates], [np.tile(only(CHAT), (CHAT_SECONDS, 1))], [0])
    together = target.send(np.zeros(len(drawn.prompt)), drawn.prompt, drawn.answer)
    at = (drawn.arrived - drawn.arrived[0]) * together.seconds / CHAT_SECONDS / CHAT_SHARE
    mix = Mix(int(drawn.prompt.mean()), int(drawn.answer.mean()))
    later = target.send(at, drawn.prompt, drawn.answer)
    return mix, [Measured.of(mix.label, None, together), Measured.of(mix.label, CHAT_SHARE, later)]


def same_formula(server: Server, folder: Path) -> list[str]:
    """Return options with which an iteration of BLIS takes as long as one of `server` with `held_ms` 0.

    :param folder: where a GPU and a model are written, whose layer makes the work of attention negligible.
    """
    width, layer = 128, 10**8
    names = ("num_attention_heads", "num_key_value_heads", "num_hidden_layers")
    model = {"hidden_size": width, "intermediate_size": layer, "torch_dtype": "bfloat16", **dict.fromkeys(names, 1)}
    (folder / "config.json").write_text(json.dumps(model), encoding="utf-8")
    fields = ("TFlopsPeak", "BwPeakTBs", "mfuPrefill", "mfuDecode", "MemoryGiB")
    (folder / "gpus.json").write_text(json.dumps({"any": dict.fromkeys(fields, 1)}), encoding="utf-8")
    # BLIS counts 2 FLOPs a weight: four square matrices of attention, three of the layer; a TFLOP/s is 1e6 a µs.
    prompt_us = (8 * width**2 + 6 * width * layer) / 1e6
    each = [1e3 * server.prompt_ms / prompt_us, 0, 0, 0, 0, 1e3 * server.sequence_ms, 1e3 * server.iteration_ms]
    return [
        *("--hardware=any", f"--hardware-config={folder}/gpus.json", "--tp=1", f"--model-config-folder={folder}"),
        *(f"--alpha-coeffs={1e3 * server.request_ms},0,0", f"--beta-coeffs={','.join(map(str, each))},0,0,0,0"),
    ]


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--model", default="meta-llama/llama-3.1-8b-instruct", show_default=True)
@click.option("--hardware", default="H100", show_default=True, help="GPU of BLIS's hardware_config.json.")
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="GPUs of tensor parallelism.")
@click.option("--mixes", default="700+20,100+100,300+60", show_default=True, help="As `rlscaler tokens calibrate`.")
@click.option("--requests", type=click.IntRange(20, 100_000), default=1000, show_default=True, help="Of a load test.")
@click.option("--sequences", type=click.IntRange(1, 1024), default=256, show_default=True)
@click.option("--batched-tokens", type=click.IntRange(2, 1_000_000), default=2048, show_default=True)
@click.option("--kv-tokens", type=click.IntRange(100, 2_000_000_000), help="[default: by BLIS]")
@click.option("--server", type=click.Choice(list(SERVERS)), help="Constants of both, without the part by KV tokens.")
@click.option("--out", type=FOLDER, callback=writable, default=Path("results/blis"), show_default=True)
def main(
    folder: Path,
    model: str,
    hardware: str,
    tp: int,
    mixes: str,
    requests: int,
    sequences: int,
    batched_tokens: int,
    kv_tokens: int | None,
    server: str | None,
    out: Path,
) -> None:
    """Find the constants of a model as BLIS in FOLDER, its repository with its binary, simulates it."""
    if batched_tokens <= sequences:
        raise click.UsageError(f"--batched-tokens {batched_tokens} must be above --sequences {sequences}")
    chosen, label = mixes_of(mixes), f"BLIS, {model} on {tp} {hardware}"
    options = [f"--max-num-seqs={sequences}", f"--max-num-batched-tokens={batched_tokens}", f"--model={model}"]
    with progress("table") as tell, TemporaryDirectory() as name:
        if server:
            known = replace(SERVERS[server], held_ms=0.0, batched_tokens=batched_tokens, sequences=sequences)
            target = Blis(folder, [*options, *same_formula(known, Path(name))])
            limits = replace(known, label=f"BLIS, {known.label}", kv_tokens=kv_tokens or known.kv_tokens)
        else:
            target = Blis(folder, [*options, f"--hardware={hardware}", f"--tp={tp}"])
            cache = kv_tokens or target.kv_tokens()
            limits = Server(label, 1.0, 1.0, 1.0, 1.0, cache, batched_tokens, sequences, "BLIS")
        target = target._replace(options=[*target.options, f"--total-kv-blocks={limits.kv_tokens // BLOCK}"])
        if server:
            done = measurements(target, limits, chosen, requests)
            load_tests(target, limits, chosen, done, tell)
            result = compared(limits, done.tests, chosen)
        else:
            result = calibrated(target, limits, chosen, requests, tell)
        tell("conversations")
        chat, tests = conversations(target, requests)
        try:
            loads = compared(Server(**result.server), tests, [chat]).loads
        except ScenarioError as error:
            raise click.ClickException(f"conversations: {error}; name more --kv-tokens") from error
    result = result.model_copy(update={"loads": [*result.loads, *loads]})
    write(result, [f"# {result.table().title}", "", *result.table().markdown(), "", *result.notes()], out, "blis")
    print_table(result.table(), result.notes(), width=TABLE_WIDTH)


if __name__ == "__main__":
    main()
