"""`rlscaler tokens calibrate`: load tests of a model server, its constants, and the file that other commands read."""

from __future__ import annotations

import asyncio
import json
import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from click.testing import CliRunner, Result

from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.tokens.calibrate import Mix, calibrated, mixes_of
from rlscaler_rl.evaluation.tokens.cli import tokens
from rlscaler_rl.evaluation.tokens.client import Target, kv_tokens, target
from rlscaler_rl.evaluation.tokens.load import server_of
from rlscaler_rl.simulation.tokens.demand import load_test, only
from rlscaler_rl.simulation.tokens.servers import SERVERS
from tests.unit.tokens.test_constants import TRUTH


class ModelServer:
    """A server with OpenAI's interface on loopback that streams each token after `token_seconds`."""

    def __init__(self) -> None:
        self.token_seconds, self.missing, self.refusal, self.metrics = 0.001, 0, "", ""
        self.status, self.event, self.buffers = 400, "", False
        self.models: Any = {"data": [{"id": "tiny"}]}
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        if self.refusal:
            return web.json_response({"error": self.refusal}, status=self.status)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        count = body["max_tokens"] - self.missing
        if self.event:
            await answer.write(self.event.encode() + b"\n\n")
        if self.buffers:
            await answer.write(count * b'data: {"choices": [{"text": ""}]}\n\n')
            count = 0
        for _ in range(count):
            await asyncio.sleep(self.token_seconds)
            # A blank after the colon may be left out.
            await answer.write(b'data:{"choices": [{"text": ""}]}\n\n')
        count = body["max_tokens"] - self.missing
        usage = {"choices": [], "usage": {"completion_tokens": count}}
        await answer.write(f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())
        return answer

    def application(self) -> web.Application:
        async def models(request: web.Request) -> web.Response:
            return web.json_response(self.models)

        async def metrics(request: web.Request) -> web.Response:
            return web.Response(text=self.metrics)

        application = web.Application()
        application.add_routes([web.get("/v1/models", models), web.get("/metrics", metrics)])
        application.add_routes([web.post("/v1/completions", self.complete)])
        return application


@pytest.fixture
def server() -> Iterator[tuple[ModelServer, str]]:
    """A running server, and its address."""
    model, loop, port = ModelServer(), asyncio.new_event_loop(), 0
    runner = web.AppRunner(model.application())
    ready = threading.Event()

    async def start() -> None:
        nonlocal port
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        ready.set()

    def serve() -> None:
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait()
    yield model, f"http://127.0.0.1:{port}"
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(tokens, [str(argument) for argument in arguments])


def test_a_client_sees_every_token_of_the_answers(server: tuple[ModelServer, str]) -> None:
    model, url = server
    prompt, answer = np.array([5, 3, 8]), np.array([4, 1, 20])
    begin = time.monotonic()
    sent = target(f"{url}/v1/", None).send(np.array([0.0, 0.05, 0.1]), prompt, answer)
    assert time.monotonic() - begin >= 0.1, "the last request waits for its moment"
    received = model.bodies[1:]
    assert sorted(len(body["prompt"]) for body in received) == [3, 5, 8], "the first request warms the server up"
    assert all(body["model"] == "tiny" and body["ignore_eos"] and body["stream"] for body in received)
    assert sent.at[0] == 0
    assert (np.diff(sent.at) >= 0).all(), "moments as they were: the first may have been late"
    assert (sent.first >= model.token_seconds).all()
    assert np.isnan(sent.token).tolist() == [False, True, False]
    assert (sent.token[[0, 2]] >= model.token_seconds).all()
    assert sent.seconds == pytest.approx((sent.at + sent.first + np.nan_to_num(sent.token) * (answer - 1)).max())


def test_a_server_that_cannot_be_measured_is_named(server: tuple[ModelServer, str]) -> None:
    model, url = server
    ones = np.ones(2, np.int32)
    chosen = target(url, "tiny")
    with pytest.raises(EvaluationError, match=r"no model 'large'; --model is one of tiny"):
        target(url, "large")
    model.refusal = "no token ids"
    with pytest.raises(
        EvaluationError, match=r"/v1/completions answers 400: .*no token ids.* takes prompts as token ids"
    ):
        chosen.send(np.zeros(2), ones, 4 * ones)
    model.refusal, model.missing = "", 1
    with pytest.raises(EvaluationError, match=r"streamed 3 tokens of 4; .* `ignore_eos`"):
        chosen.send(np.zeros(2), ones, 4 * ones)
    with pytest.raises(EvaluationError, match="name the address of a server that is up"):
        target("http://127.0.0.1:1", None)
    model.models = []
    with pytest.raises(EvaluationError, match="/v1/models is no list of models"):
        target(url, None)


def test_faults_of_a_server_are_told_as_they_are(
    server: tuple[ModelServer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, url = server
    chosen, ones = target(url, "tiny"), np.full(2, 8, np.int32)
    with pytest.raises(EvaluationError, match="begins with http"):
        target("127.0.0.1:8000", None)
    model.refusal, model.status = "boom", 500
    with pytest.raises(EvaluationError, match=r"answers 500: .*boom.*; see the log of the server"):
        chosen.send(np.zeros(2), ones, ones)
    model.refusal, model.event = "", 'data: {"error": {"message": "CUDA out of memory"}}'
    with pytest.raises(EvaluationError, match=r"reports .*CUDA out of memory"):
        chosen.send(np.zeros(2), ones, ones)
    model.event = 'data: {"usage": [1]}'
    with pytest.raises(EvaluationError, match=r"TypeError .*see the log"):
        chosen.send(np.zeros(2), ones, ones)
    model.event, model.buffers = "", True
    with pytest.raises(EvaluationError, match="come all at once, as behind a proxy"):
        chosen.send(np.zeros(2), ones, ones)
    with pytest.raises(EvaluationError, match=r"/metrics answers 404.*--kv-tokens"):
        kv_tokens(f"{url}/elsewhere")
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    model.buffers = False
    chosen.send(np.zeros(2), ones, ones)
    assert model.keys[-1] == "Bearer secret"


def test_no_prompt_is_sent_twice(server: tuple[ModelServer, str]) -> None:
    model, url = server
    for _ in range(2):
        target(url, "tiny").send(np.zeros(5), np.full(5, 30), np.full(5, 20))
    prompts = {tuple(body["prompt"]) for body in model.bodies}
    assert len(prompts) == len(model.bodies) == 12


def test_requests_that_leave_in_another_order_are_in_order_of_their_moments(server: tuple[ModelServer, str]) -> None:
    _, url = server
    sent = target(url, "tiny").send(np.array([0.2, 0.1, 0.0]), np.array([3, 4, 5]), np.array([4, 5, 6]))
    assert (np.diff(sent.at) > 0).all()
    assert sent.prompt.tolist() == [5, 4, 3]
    assert sent.answer.tolist() == [6, 5, 4]


def test_connections_beyond_the_open_files_of_the_process_are_told() -> None:
    limits = replace(SERVERS["8b-a100"], sequences=1024)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resource, "getrlimit", lambda kind: (1024, 2048))
        with pytest.raises(EvaluationError, match=r"4160 connections at once.*2048 files; raise `ulimit -n`"):
            calibrated(Target("http://127.0.0.1:1", "m"), limits, [Mix(20, 10)], 20, lambda text: None)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


def test_a_small_server_is_weighed_by_the_requests_that_it_can_carry(tmp_path: Path) -> None:
    small = replace(SERVERS["8b-l40s"], label="small", prompt_ms=0.25, kv_tokens=60_000)
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({"server": asdict(small)}))
    assert "tokenWeights" in (told := invoke("weights", "--server", path, "--mix", "short").output), told
    refused = invoke("weights", "--server", path, "--mix", "rag")
    assert refused.exit_code == 2
    assert "small: not even 0.01 requests/s of answers from documents are answered within 2.5 s" in refused.output
    faster, slower = (
        load_test(replace(SERVERS["8b-a100"], request_ms=way), only("chat"), 1.0, 0.15).per_second for way in (0, 500)
    )
    assert slower < 0.9 * faster, "a client waits for the way to the server as well"


def test_the_size_of_the_kv_cache_is_read_from_the_metrics(server: tuple[ModelServer, str]) -> None:
    model, url = server
    model.metrics = 'vllm:cache_config_info{block_size="128",cache_dtype="auto",num_gpu_blocks="512"} 1.0\n'
    assert kv_tokens(url) == 65_536
    model.metrics = 'vllm:cache_config_info{block_size="128",num_gpu_blocks="None"} 1.0\n'
    with pytest.raises(EvaluationError, match="--kv-tokens"):
        kv_tokens(url)


def test_wrong_mixes_and_limits_are_told(server: tuple[ModelServer, str], tmp_path: Path) -> None:
    model, url = server
    assert mixes_of("700+20, 100+100,300+60") == [Mix(700, 20), Mix(100, 100), Mix(300, 60)]
    with pytest.raises(EvaluationError, match=r"'700' is not PROMPT\+ANSWER"):
        mixes_of("700,100+100,300+60")
    for wrong in ("700+20,700+20,300+60", "700+20,100+100,300+60,700+20"):
        with pytest.raises(EvaluationError, match="two mixes for the constants"):
            mixes_of(wrong)
    with pytest.raises(EvaluationError, match="at most 1,000,000 tokens"):
        mixes_of("99999999999+20,3+4,2+4")
    few = ("calibrate", url, "--out", tmp_path / "out", "--kv-tokens", 500)
    assert "shorten the mixes" in invoke(*few).output
    assert "must be above --sequences 256" in invoke(*few, "--batched-tokens", 256).output
    assert "measurements.json: No such file or directory; leave out --resume" in invoke(
        "calibrate", url, "--out", tmp_path / "out", "--kv-tokens", 50_000, "--resume"
    ).output.replace("\n", " ")
    assert not model.bodies, "nothing is measured with wrong options"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("{}", "no JSON with a field server"),
        ("no JSON", "no JSON with a field server"),
        ('{"server": {"label": "a", "iteration_ms": "fast"}}', "server.iteration_ms: "),
        (json.dumps({"server": asdict(replace(TRUTH, iteration_ms=-1.0))}), "server.iteration_ms: "),
        (json.dumps({"server": asdict(replace(TRUTH, held_ms=1e400))}), "server.held_ms: "),
        (json.dumps({"server": asdict(replace(TRUTH, kv_tokens=-5))}), "server.kv_tokens: "),
        (json.dumps({"server": asdict(replace(TRUTH, kv_tokens=10**30))}), "server.kv_tokens: "),
        (json.dumps({"server": asdict(replace(TRUTH, batched_tokens=8))}), "service 0: batched_tokens = 8"),
    ],
)
def test_a_file_that_is_no_calibration_is_named(tmp_path: Path, written: str, told: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(written)
    result = invoke("weights", "--server", path)
    assert result.exit_code == 2
    assert f"--server {path}: {told}" in result.output
    assert "neither a preset nor a file" in invoke("weights", "--server", tmp_path / "none.json").output
    assert server_of("8b-a100") is SERVERS["8b-a100"]


@pytest.mark.slow
def test_a_calibrated_server_is_one_of_the_other_commands(server: tuple[ModelServer, str], tmp_path: Path) -> None:
    _, url = server
    given = ("--mixes", "40+8,10+30,20+15", "--requests", 20, "--sequences", 4, "--kv-tokens", 200_000)
    result = invoke("calibrate", url, *given, "--out", tmp_path, "-o", "json")
    assert result.exit_code == 0, result.output
    calibration = json.loads(result.stdout)
    assert [load["held_out"] for load in calibration["loads"]] == [False] * 8 + [True] * 4
    assert all(load["measured"]["token_p50"] >= 1 for load in calibration["loads"]), "a token takes 1 ms"
    assert (tmp_path / "calibration.png").stat().st_size > 10_000
    assert len(json.loads((tmp_path / "measurements.json").read_text())["tests"]) == 12
    text = (tmp_path / "calibration.md").read_text()
    assert "Largest errors on the mix held out: TTFT p50" in text
    weights = invoke("weights", "--server", tmp_path / "calibration.json", "--ttft", 600, "--tpot", 60)
    assert "tokenWeights" in weights.output, weights.output
