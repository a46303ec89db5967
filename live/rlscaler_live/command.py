"""`rlscaler evaluate --env cluster` and `rlscaler compare --env cluster`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from rlscaler_live.ground import ground, read_parts
from rlscaler_live.play import Watch, check, live_entries, play
from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.command import finish
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.inputs import RESULTS
from rlscaler_rl.evaluation.schema import ResultFile
from rlscaler_rl.evaluation.settings import read_settings

DEFAULTS: dict[str, Any] = {
    "workloads": ("spike",),
    "runs": 1,
    "episodes": 1,
    "extras": False,
    "duration_seconds": 300,
    "level": "live",
    "world": "exact",
}
"""Everything takes as long as it says: one pattern, one episode of five minutes for each contender."""

FROM_FILE = {"episode_duration": "duration_seconds", "low_rps": "low_rps", "high_rps": "high_rps"}
"""Fields of a live environment that also decide which episodes are played."""

DECIDED = {
    "patterns": "choose the loads with --workloads",
    "trace": "choose the loads with --workloads",
    "start_replicas": "every episode begins with what its first rate needs",
}
"""Fields of a live environment that an evaluation does not take, and why."""

EPISODES = "episodes.jsonl"
"""Every episode's figures as soon as it is over: hours of real time must not be lost to the last minute."""

BETWEEN_EPISODES_SECONDS = 60.0
"""Approximate time to get back to the first replicas and to no load."""


def execute(
    kind: str, model: tuple[str, ...], config: Path | None, folder: Path, console: Console, **options: Any
) -> ResultFile:
    """Play live, judge and write the folder; the console is told how it goes. Raises EvaluationError."""
    began = time.monotonic()
    live, _, _ = read_parts(config)
    _refuse_decided(live, config)
    given = {ours: live[theirs] for theirs, ours in FROM_FILE.items() if theirs in live}
    chosen = DEFAULTS | given | {name: value for name, value in options.items() if value is not None}
    settings = read_settings(config, **chosen | {"level": "live", "extras": False})
    check(settings)
    loaded = models.load_all(model, RESULTS)
    episodes = len(live_entries(kind, loaded)) * len(settings.played) * settings.runs * settings.episodes
    minutes = episodes * (settings.duration_seconds + BETWEEN_EPISODES_SECONDS) / 60
    console.print(f"[bold]{kind}[/] of {loaded[0].name}, live: {episodes} episodes, about {minutes:.0f} min")

    def say(text: str) -> None:
        console.print(text, highlight=False)

    def step(workload: str, label: str) -> None:
        say(f"{(time.monotonic() - began) / 60:5.1f} min  {workload}: {label}")

    folder.mkdir(parents=True, exist_ok=True)
    with ground(live, folder, settings.seed, say) as place, (folder / EPISODES).open("w", encoding="utf-8") as file:

        def keep(workload: str, contender: str, figures: Mapping[str, Any]) -> None:
            print(json.dumps({"workload": workload, "contender": contender} | _scalars(figures)), file=file, flush=True)

        played = play(settings, kind, loaded, place, Watch(step, keep))
    return finish(kind, played, loaded[:1], folder, began, console)


def _refuse_decided(live: Mapping[str, Any], config: Path | None) -> None:
    """Raise EvaluationError for fields that would be passed over."""
    pools = {name for pool in ("gpu", "cpu") if isinstance(live.get(pool), dict) for name in live[pool]}
    for name, why in DECIDED.items():
        if name in live or name in pools:
            raise EvaluationError(f"--config {config}: environment: {name}: leave it out, {why}")


def _scalars(figures: Mapping[str, Any]) -> dict[str, float | None]:
    """Single numbers only; None where one is not known."""
    scalars = {name: float(value) for name, value in figures.items() if isinstance(value, int | float)}
    return {name: value if math.isfinite(value) else None for name, value in scalars.items()}
