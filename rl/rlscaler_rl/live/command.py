"""`rlscaler evaluate --env cluster` and `rlscaler compare --env cluster`."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from rlscaler_rl.evaluation import models
from rlscaler_rl.evaluation.files import Layout, write_all
from rlscaler_rl.evaluation.report.terminal import show
from rlscaler_rl.evaluation.result import result_file
from rlscaler_rl.evaluation.settings import read_settings
from rlscaler_rl.live.ground import ground, read_parts
from rlscaler_rl.live.play import check, live_entries, play

RESULTS = Path("rl")
DEFAULTS: dict[str, Any] = {
    "workloads": ("spike",),
    "runs": 1,
    "episodes": 1,
    "extras": False,
    "duration_seconds": 300,
    "level": "live",
}
"""Everything takes as long as it says: one pattern, one episode of five minutes for each contender."""

BETWEEN_EPISODES_SECONDS = 60.0
"""About what it takes to get back to the first replicas and to silence."""


def execute(kind: str, model: tuple[str, ...], config: Path | None, out: Path | None, **options: Any) -> bool:
    """Play live, judge, write and print; true when the run is valid. Raises EvaluationError, LiveError."""
    began = time.monotonic()
    console = Console()
    live, _, _ = read_parts(config)
    in_file = {"episode_duration": "duration_seconds"}
    given = {ours: live[theirs] for theirs, ours in in_file.items() if theirs in live}
    chosen = DEFAULTS | given | {name: value for name, value in options.items() if value is not None}
    settings = read_settings(config, **chosen | {"level": "live", "extras": False})
    check(settings)
    loaded = models.load_all(model, RESULTS)
    episodes = len(live_entries(kind, loaded)) * len(settings.played) * settings.runs * settings.episodes
    minutes = episodes * (settings.duration_seconds + BETWEEN_EPISODES_SECONDS) / 60
    console.print(f"[bold]{kind}[/] of {loaded[0].name}, live: {episodes} episodes, about {minutes:.0f} min")
    folder = out or RESULTS / f"{kind}_{datetime.now():%Y%m%d_%H%M%S}"

    def say(text: str) -> None:
        console.print(text, highlight=False)

    def step(workload: str, label: str) -> None:
        say(f"{(time.monotonic() - began) / 60:5.1f} min  {workload}: {label}")

    with ground(live, folder, settings.seed, say) as place:
        played = play(settings, kind, loaded, place, step)
    layout = Layout.at(kind, folder, [item.name for item in played.workloads])
    result = result_file(kind, played, loaded[:1], time.monotonic() - began, layout.names())
    write_all(layout, result, played)
    show(result, layout.folder, console)
    return result.valid
