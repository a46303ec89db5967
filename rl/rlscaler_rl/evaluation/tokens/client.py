"""Load tests of a model server with OpenAI's interface, as one client sees the tokens that the server streams."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import time
from typing import Any, NamedTuple

import aiohttp
import numpy as np

from rlscaler_core.decision.types import Float, Int
from rlscaler_rl.evaluation.errors import EvaluationError

FIRST_ID, LAST_ID = 3, 500
"""Token ids of prompts, drawn uniformly; every vocabulary has them, and the lowest ones are special tokens."""

SILENCE_SECONDS, LOOK_UP_SECONDS = 600, 30
"""Longest time without a byte from the server under load, and for models and metrics."""

LEAST_TOKEN_SECONDS = 2e-4
"""Time per further token below which the tokens have waited for one another on their way."""

FILES = 64
"""Open files of the process beside its connections."""

_CACHE = re.compile(r"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)


class Sent(NamedTuple):
    """Requests of one load test in order of their moments; times in seconds, the first request is sent at 0."""

    at: Float  # (M,) moments at which they were sent
    prompt: Int  # (M,) tokens
    answer: Int  # (M,) tokens
    first: Float  # (M,) from sending to the first token
    token: Float  # (M,) per further token; NaN for an answer of one token

    @property
    def seconds(self) -> float:
        """Return the time from the first request to the last token of all answers."""
        return float(np.max(self.at + self.first + np.nan_to_num(self.token) * (self.answer - 1)))


class Target(NamedTuple):
    """A model of a server."""

    url: str
    model: str

    def send(self, at: Float, prompt: Int, answer: Int) -> Sent:
        """Send requests at their moments (M,) in seconds, with so many tokens (M,), and wait for all answers.

        The tokens of a prompt are drawn afresh at every call: a server with a prefix cache has seen none of them.
        Raises EvaluationError naming the address, the answer of the server and the remedy.
        """
        _allow_open_files(len(at) + FILES)
        return asyncio.run(_play(self, at, prompt, answer, np.random.default_rng()))


def target(url: str, model: str | None) -> Target:
    """Return the model of that name, by default the first that the server lists.

    Raises EvaluationError naming the address and the remedy.
    """
    url = url.rstrip("/").removesuffix("/v1")
    if not url.startswith(("http://", "https://")):
        raise EvaluationError(f"{url}: an address begins with http:// or https://, as in http://127.0.0.1:8000")
    try:
        names = [str(entry["id"]) for entry in json.loads(_get(f"{url}/v1/models"))["data"]]
    except (ValueError, KeyError, TypeError) as error:
        raise EvaluationError(
            f"{url}/v1/models is no list of models; name the address of a server with OpenAI's interface"
        ) from error
    if model is None and not names:
        raise EvaluationError(f"{url}/v1/models lists no model; name one with --model")
    if model is not None and model not in names:
        raise EvaluationError(f"{url}: no model {model!r}; --model is one of {', '.join(names)}")
    return Target(url, model or names[0])


def kv_tokens(url: str) -> int:
    """Return the tokens that the KV cache holds, by `vllm:cache_config_info` of the server's metrics.

    Raises EvaluationError where the series or one of its labels is missing.
    """
    try:
        series = _CACHE.search(_get(f"{url}/metrics"))
    except EvaluationError as error:
        raise EvaluationError(f"{error}, or name the size of the KV cache with --kv-tokens") from error
    labels = dict(re.findall(r'(\w+)="([^"]*)"', series[1])) if series else {}
    try:
        return int(labels["num_gpu_blocks"]) * int(labels["block_size"])
    except (KeyError, ValueError) as error:
        raise EvaluationError(
            f"{url}/metrics: no vllm:cache_config_info with num_gpu_blocks and block_size; name the size of the KV "
            "cache with --kv-tokens"
        ) from error


def _get(url: str) -> str:
    async def get() -> tuple[int, str]:
        timeout = aiohttp.ClientTimeout(total=LOOK_UP_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, headers=_key()) as session, session.get(url) as answer:
            return answer.status, await answer.text(errors="replace")

    try:
        status, text = asyncio.run(get())
    except TimeoutError as error:
        raise EvaluationError(f"{url}: no answer in {LOOK_UP_SECONDS} s; see the log of the server") from error
    except (aiohttp.ClientError, OSError) as error:
        raise EvaluationError(f"{url}: {error}; name the address of a server that is up") from error
    if status in (401, 403):
        raise EvaluationError(f"{url} answers {status}; put the key of the server into OPENAI_API_KEY")
    if status != 200:
        raise EvaluationError(f"{url} answers {status}: {text[:200]}; name the address of a server with this path")
    return text


def _allow_open_files(count: int) -> None:
    """Let the process open so many files. Raises EvaluationError where it may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= count or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < count:
        raise EvaluationError(
            f"{count} connections at once are needed, and this process may open {hard} files; raise `ulimit -n`, or "
            "name fewer --requests and --sequences"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _key() -> dict[str, str]:
    """Return the header with the key of OPENAI_API_KEY, where there is one."""
    key = os.environ.get("OPENAI_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}


async def _play(target: Target, at: Float, prompt: Int, answer: Int, rng: np.random.Generator) -> Sent:
    def body(count: int, tokens: int) -> dict[str, Any]:
        return {
            "model": target.model,
            "prompt": rng.integers(FIRST_ID, LAST_ID, count).tolist(),
            "max_tokens": int(tokens),
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    bodies = [body(count, tokens) for count, tokens in zip(prompt, answer, strict=True)]
    timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENCE_SECONDS)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, headers=_key()) as session:
        # Connections and whatever the server does once are not part of the first measured request.
        await _request(session, target, body(prompt[0], answer[0]), 0.0)
        begin = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(_request(session, target, body, begin + moment))
                    for body, moment in zip(bodies, at, strict=True)
                ]
        except* EvaluationError as errors:
            raise errors.exceptions[0] from None
    sent, first, last = np.array([task.result() for task in tasks]).T
    further = np.where(answer > 1, (last - first) / np.maximum(answer - 1, 1), np.nan)
    # A client that is late itself sees some tokens at once, and hardly all.
    if (answer > 1).any() and np.nanpercentile(further, 90) < LEAST_TOKEN_SECONDS:
        raise EvaluationError(
            f"{target.url}: the tokens of an answer come all at once, as behind a proxy that buffers; name the address "
            "of the server itself"
        )
    # Two requests that are due at nearly the same time may leave in another order.
    order = np.argsort(sent, kind="stable")
    first = first - sent
    return Sent(sent[order] - sent[order[0]], prompt[order], answer[order], first[order], further[order])


async def _request(
    session: aiohttp.ClientSession, target: Target, body: dict[str, Any], moment: float
) -> tuple[float, float, float]:
    """Return when a request was sent, and when its first and its last token came."""
    await asyncio.sleep(max(moment - time.perf_counter(), 0.0))
    sent, first, last, streamed = time.perf_counter(), 0.0, 0.0, 0
    url = f"{target.url}/v1/completions"
    try:
        async with session.post(url, json=body) as answer:
            if answer.status != 200:
                remedy = "see the log of the server"
                if answer.status < 500:
                    remedy = (
                        "a server is needed that takes prompts as token ids and `ignore_eos`, as vLLM and SGLang do"
                    )
                text = await answer.text(errors="replace")
                raise EvaluationError(f"{url} answers {answer.status}: {text[:300]}; {remedy}")
            async for line in answer.content:
                payload = line.removeprefix(b"data:").strip()
                if not line.startswith(b"data:") or not payload.startswith(b"{"):
                    continue
                now, event = time.perf_counter(), json.loads(payload)
                if event.get("error"):
                    raise EvaluationError(f"{url} reports {event['error']}; see the log of the server")
                if event.get("choices"):
                    first, last = first or now, now
                if event.get("usage"):
                    streamed = event["usage"]["completion_tokens"]
    except TimeoutError as error:
        raise EvaluationError(
            f"{url}: no byte of an answer in {SILENCE_SECONDS} s; see the log of the server, or test it with fewer "
            "--requests and --sequences"
        ) from error
    except (aiohttp.ClientError, ValueError, KeyError, TypeError) as error:
        raise EvaluationError(f"{url}: {type(error).__name__} {error}; see the log of the server") from error
    if streamed != body["max_tokens"] or not first:
        raise EvaluationError(
            f"{url} streamed {streamed} tokens of {body['max_tokens']}; a server is needed that honours "
            "`ignore_eos` and `stream_options`, with a context that is long enough for --mixes"
        )
    return sent, first, last
