"""Play the pods of a Deployment in real time, and leave the outcome of every request."""

from __future__ import annotations

import asyncio
import csv
import json
import time
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from prometheus_client import CollectorRegistry

from rlscaler_loadgen.service.app import listen_on, stop_on_signals, until_stopped
from rlscaler_loadgen.service.fleet import connect, pods_of
from rlscaler_loadgen.service.http import metrics_app
from rlscaler_rl.evaluation.tokens.emulated.load import Story, story
from rlscaler_rl.evaluation.tokens.emulated.pods import ReplicaBook, VllmCollector, outcomes
from rlscaler_rl.simulation.tokens import ledger
from rlscaler_rl.simulation.tokens.level import TokenLevel
from rlscaler_rl.simulation.tokens.servers import Server

STEP_SECONDS = 0.2
DRAIN_SECONDS = 60.0
"""Seconds after the load in which requests that wait may still be answered, played at once."""

OUTCOMES = "outcomes.csv"


@dataclass(frozen=True)
class Emulation:
    """Place and load of the emulated servers."""

    kubeconfig: str | None
    namespace: str
    deployment: str
    server: Server
    seconds: int
    seed: int
    most: int
    """Replicas at most."""
    metrics_port: int
    begin: Path | None
    """The load begins once this file is there; None: with the first ready pod."""
    out: Path


def facts(told: Story) -> dict[str, float]:
    """Return the facts of the usual mix that a policy declares."""
    return {
        "answer_weight": told.weights.answer,
        "tokens_per_second": told.weights.capacity,
        "requests_per_second": told.usual.per_second,
        "first_seconds": float(told.services.first_seconds[0]),
        "token_seconds": float(told.services.token_seconds[0]),
    }


async def emulate(this: Emulation) -> None:
    """Serve until the load is over or a signal comes. Raises ServiceError where the cluster or the port is not
    there, and LedgerError where the counters contradict one another."""
    told = story(this.server, this.seconds, this.seed, this.most)
    level = TokenLevel(told.services, told.requests)
    book = ReplicaBook(level)
    this.out.mkdir(parents=True, exist_ok=True)
    (this.out / "facts.json").write_text(json.dumps(facts(told)) + "\n")
    registry = CollectorRegistry()
    registry.register(VllmCollector(book, this.namespace, this.deployment))
    runner = web.AppRunner(metrics_app(registry), access_log=None, shutdown_timeout=1.0)
    stop = stop_on_signals()
    try:
        await listen_on(runner, "127.0.0.1", this.metrics_port)
        async with await connect(this.kubeconfig) as api:
            follower = pods_of(api, this.namespace, this.deployment, "gpu", book)
            await until_stopped(stop, follower.run(), _play(this, book))
    finally:
        await runner.cleanup()


async def _play(this: Emulation, book: ReplicaBook) -> None:
    while not book.slots or not (this.begin is None or this.begin.exists()):  # noqa: ASYNC110  of a file
        await asyncio.sleep(STEP_SECONDS)
    begun, level = time.time(), book.level
    (this.out / "started.json").write_text(json.dumps({"started_at": begun}) + "\n")
    while level.time < this.seconds:
        await asyncio.sleep(STEP_SECONDS)
        # A busy machine plays late what it missed; it takes no capacity away.
        book.advance(min(time.time() - begun, float(this.seconds)) - level.time)
    level.advance(DRAIN_SECONDS)
    ledger.check(level)
    columns = outcomes(level)
    with (this.out / OUTCOMES).open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*(column.round(4).tolist() for column in columns.values()), strict=True))
