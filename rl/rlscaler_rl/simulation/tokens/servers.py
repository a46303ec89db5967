"""Constants of model servers with continuous batching, and classes of requests by their lengths.

An iteration of a server takes a + b * sequences + c * prompt tokens + d * tokens in the KV cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

Milliseconds = Annotated[float, Field(ge=0, le=60_000, allow_inf_nan=False)]
Positive = Annotated[float, Field(ge=1e-9, le=60_000, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=2, le=2_000_000_000)]


@dataclass(frozen=True, slots=True)
class Server:
    """Constants of one model on one kind of GPU."""

    label: str
    iteration_ms: Annotated[float, Field(ge=1e-3, le=60_000, allow_inf_nan=False)]
    """Part of an iteration that is always there: a."""

    sequence_ms: Milliseconds
    """For each sequence of the batch: b."""

    prompt_ms: Positive
    """For each token of a prompt that is processed: c."""

    held_ms: Milliseconds
    """For each token that the KV cache holds: d."""

    kv_tokens: Tokens
    """Tokens that the KV cache holds at most."""

    batched_tokens: Tokens
    """Tokens of an iteration, as vLLM's `max_num_batched_tokens`."""

    sequences: Annotated[int, Field(ge=1, le=1024)]
    """Sequences of a batch, as vLLM's `max_num_seqs`."""

    source: str

    request_ms: Milliseconds = 0.0
    """Part of a first token that no iteration explains, such as the way of the request to the server."""


SERVERS: dict[str, Server] = {
    "8b-l40s": Server(
        "8B on L40S", 22.0, 0.09, 0.11, 1.9e-4, 180_000, 2048, 256, "derived from the bandwidth and speed of the GPU"
    ),
    "8b-a100": Server(
        "8B on A100-80",
        9.0,
        0.06,
        0.075,
        8e-5,
        400_000,
        2048,
        256,
        "between the constants of WVA (6.96, 0.042, 0.1) and those of SageServe on two GPUs (8.3, 0.25, 0.06)",
    ),
    "8b-2xa100": Server(
        "8B on 2 A100-80",
        8.3,
        0.25,
        0.06,
        4e-5,
        950_000,
        2048,
        32,
        "SageServe's fit, up to 32 sequences; KV cache from its memory and 128 KiB a token",
    ),
    "70b-8xh100": Server("70B on 8 H100", 29.6, 0.31, 0.095, 2e-5, 1_200_000, 4096, 256, "SageServe's fit"),
}
"""Presets by name. None was measured by this project."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Log-normal lengths of one class of requests: medians, and standard deviations of the logarithms."""

    label: str
    prompt: float
    answer: float
    prompt_spread: float
    answer_spread: float
    cached: float
    """Share of the prompt that a warm prefix cache has."""

    source: str


KINDS: dict[str, Kind] = {
    "chat": Kind("conversations", 1020, 150, 0.84, 0.76, 0.3, "Azure 2023, conversations"),
    "code": Kind("completion of code", 1469, 14, 0.97, 1.18, 0.2, "Azure 2023, code"),
    "rag": Kind("answers from documents", 5500, 180, 0.5, 0.6, 0.2, "medians of Mooncake; spreads assumed"),
    "reasoning": Kind("long reasoning", 500, 1500, 0.6, 0.6, 0.1, "assumed"),
    "short": Kind("short questions", 280, 50, 0.5, 0.6, 0.2, "assumed"),
}

MOST_PROMPT, MOST_ANSWER = 16_384, 8_192
"""Longest lengths that are drawn: the context of a model ends somewhere."""
