"""The held-back part of the history, played by everybody, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from rlscaler_rl.evaluation.board import Board
from rlscaler_rl.evaluation.invariants import Audit
from rlscaler_rl.evaluation.service_tuning.history import History
from rlscaler_rl.evaluation.service_tuning.rivals import Rival
from rlscaler_rl.evaluation.service_tuning.score import Score
from rlscaler_rl.evaluation.service_tuning.service import Service
from rlscaler_rl.simulation.episode import run
from rlscaler_rl.simulation.levels import LevelName
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.workloads import Part, episodes

DRAWS = 8
"""The most times that a block is played, each with other arrivals and cold starts."""


def scenarios(service: Service, history: History, part: Part, wanted: int, seed: int) -> tuple[Scenarios, int]:
    """About `wanted` episodes of a part at its own scale, and in how many runs; every run plays every block once."""
    blocks = min(history.blocks(part, service), wanted)
    runs = min(max(wanted // blocks, 1), DRAWS)
    made = episodes(
        history.recording,
        part,
        runs=runs,
        episodes=blocks,
        seed=seed,
        duration_seconds=service.episode_seconds,
        interval_seconds=float(service.interval),
        high=history.recording.reference,
        **service.columns(),
    )
    return service.bind(made), runs


def replayed(rows: Scenarios, runs: int) -> tuple[int, ...]:
    """(N,) which block of the history every row of `scenarios` replays; two idle nights are two."""
    return tuple(np.tile(np.arange(len(rows) // runs), runs).tolist())


def play(
    name: str,
    rivals: Sequence[Rival],
    rows: Scenarios,
    runs: int,
    score: Score,
    level: LevelName,
) -> tuple[Board, Audit]:
    """Everybody on the same arrivals with the same cold starts; J is the service's own."""
    board, audit = Board(list(rivals)), Audit()
    blocks = replayed(rows, runs)
    for rival in rivals:
        mine = _kept(rows, rival.replicas)
        done = run(mine, rival.make(mine), level=level)
        audit.add(f"{name}/{rival.name}", done.ledger, mine)
        figures = {one.name: np.asarray(getattr(done.result, one.name), np.float64) for one in fields(done.result)}
        figures["j"] = score.j(done.result)
        board.add(name, rival.name, {key: values.reshape(runs, -1) for key, values in figures.items()}, blocks)
    return board, audit


def _kept(rows: Scenarios, replicas: tuple[int, int] | None) -> Scenarios:
    """For replicas that stay: they are there from the first second, whatever the policy's limits."""
    if replicas is None:
        return rows
    fixed = np.where(rows.present, replicas, 0)
    return replace(rows.copy(), initial=fixed, min_replicas=fixed, max_replicas=fixed)
