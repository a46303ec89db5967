"""Studies of agents that share a pool: one change at a time, each with several seeds, on the same test pools.

A study of training trains every variant and plays it; a study of playing takes agents that were trained and plays them
under other circumstances, with weighted max-min beside them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_rl.evaluation.statistics import Design, Interval, over_seeds, weights
from rlscaler_rl.tenants.changes import Change
from rlscaler_rl.tenants.compare import Figure
from rlscaler_rl.tenants.draw import TEST_LOADS, Request, draw
from rlscaler_rl.tenants.evaluate import Agents
from rlscaler_rl.tenants.hrac import Options, homogeneous, train
from rlscaler_rl.tenants.play import Played, play
from rlscaler_rl.tenants.signals import NONE_LOST, Loss

Say = Callable[[str], None]


def _with(**changes: Any) -> Callable[[Options], Options]:
    return lambda options: replace(options, **changes)


def _of(tenants: int) -> Callable[[Request], Request]:
    """Pools of so many tenants; fewer pools of large ones, so that each variant takes as long."""
    return lambda request: replace(request, tenants=tenants, pools=max(3, request.pools * request.tenants // tenants))


def _change(change: Change) -> Callable[[Request], Request]:
    return lambda request: replace(request, change=change)


CHANGED: dict[Change, str] = {
    "none": "nothing changes",
    "join": "a tenant joins",
    "leave": "a tenant leaves and comes back",
    "gpus": "a quarter of the GPUs is lost for a third of the time",
}

TRAINING: dict[str, dict[str, Callable[[Options], Options]]] = {
    "lambda": {f"lambda {value:g}": _with(local=value) for value in (0.0, 0.2, 0.5, 0.8, 1.0)},
    "shaping": {"potential": _with(shaping="potential"), "difference, as the paper": _with(shaping="difference")},
    "roles": {
        "a policy for each role": _with(),
        "one policy, attention (MAPPO)": homogeneous,
        "one policy, no attention (IPPO)": lambda options: replace(homogeneous(options), attention="off"),
        "independent, no arbiter": _with(attention="off", budget=False, local=1.0),
        "arbiter alone": _with(acts=(False, False, True)),
    },
    "attention": {kind: _with(attention=kind) for kind in ("off", "dense", "grouped")},
}
"""Studies of training by name: variants by name, each a change of the options."""

UNITS: tuple[Literal["signal", "agent"], ...] = ("signal", "agent")

PLAYING: dict[str, dict[str, tuple[Callable[[Request], Request], Loss]]] = {
    "information": {
        f"{share:.0%} lost by the {unit}": (replace, Loss(share, unit))
        for unit in UNITS
        for share in (0.0, 0.3, 0.5, 0.7)
    },
    "tenants": {f"{number} tenants": (_of(number), NONE_LOST) for number in (5, 10, 25, 50, 100)},
    "changes": {text: (_change(change), NONE_LOST) for change, text in CHANGED.items()},
}
"""Studies of playing by name: variants by name, each a change of the request and what is lost."""


class Line(BaseModel):
    """One contender in one variant."""

    model_config = ConfigDict(extra="forbid")

    variant: str
    contender: str
    j: Figure
    """J of a tenant, with the interval over pools and seeds."""
    late: float
    """Late requests of the mean tenant, %."""
    below: float
    """Time below the guarantee that was asked for, %."""


class Study(BaseModel):
    """What a study came to."""

    model_config = ConfigDict(extra="forbid")

    name: str
    seeds: list[int]
    epochs: int
    """Of each training."""
    pools: int
    lines: list[Line]


def tested(options: Options, pools: int) -> Request:
    """The pools that every variant of a study plays."""
    return Request(options.tenants, pools, options.hours, options.tightness, TEST_LOADS, cpu=True, seed=999)


def study_training(name: str, options: Options, seeds: list[int], pools: int, out: Path, say: Say) -> Study:
    """Train the variants of a study with every seed and play them. What lies in `out` already is not trained again.

    Raises ModelError where a folder in `out` is no training's.
    """
    request = tested(options, pools)
    lines = [_line("forecast rule", "weighted max-min", [_max_min(request)], request)]
    for variant, change in TRAINING[name].items():
        found = []
        for seed in seeds:
            folder = out / f"{variant.replace(' ', '-').replace(',', '')}-{seed}"
            changed = replace(change(options), seed=seed)
            if not _is_of(folder, changed):
                say(f"{name}: {variant}, seed {seed}")
                train(changed, say).save(folder)
            found.append(Agents(folder).play(request))
        lines.append(_line(variant, "all agents", found, request))
        say(f"{variant}: J {lines[-1].j.mean:.3f}")
    return Study(name=name, seeds=seeds, epochs=options.epochs, pools=pools, lines=lines)


def study_playing(name: str, trained: list[Agents], options: Options, pools: int, say: Say) -> Study:
    """Play trained agents, those of one seed after those of the other, under the circumstances of a study."""
    lines = []
    for variant, (change, loss) in PLAYING[name].items():
        request = change(tested(options, pools))
        lines.append(_line(variant, "weighted max-min", [_max_min(request, loss)], request))
        lines.append(_line(variant, "all agents", [agents.play(request, loss) for agents in trained], request))
        say(f"{variant}: J {lines[-1].j.mean:.3f} against {lines[-2].j.mean:.3f}")
    epochs = min(int(agents.options["epochs"]) for agents in trained)
    seeds = [int(agents.options["seed"]) for agents in trained]
    return Study(name=name, seeds=seeds, epochs=epochs, pools=pools, lines=lines)


def _is_of(folder: Path, options: Options) -> bool:
    """Whether a folder is there, and holds what these options train."""
    return folder.is_dir() and bool(Agents(folder).options == json.loads(json.dumps(asdict(options))))


def _max_min(request: Request, loss: Loss | None = None) -> Played:
    drawn = draw(request)
    rule = load_bundled("rule")
    return play(drawn.scenarios, drawn.tenants, drawn.gpus, rule, "MaxMinFair", loss, drawn.changes)


def _line(variant: str, contender: str, found: list[Played], request: Request) -> Line:
    pools = [_of_pools(played.j, request) for played in found]
    drawn_often = weights(Design(1, request.pools))
    interval = Interval.of(float(np.mean(pools)), over_seeds([drawn_often @ one for one in pools]))
    return Line(
        variant=variant,
        contender=contender,
        j=Figure(mean=interval.mean, low=interval.low, high=interval.high),
        late=float(np.mean([played.late_percent.mean() for played in found])),
        below=float(np.mean([100 * played.below.mean() for played in found])),
    )


def _of_pools(values: Float, request: Request) -> Float:
    return values.reshape(request.pools, request.tenants).mean(axis=1)


def markdown(study: Study) -> Iterator[str]:
    """Yield the study as a table in Markdown."""
    yield "| variant | who decides | J of a tenant | late (%) | below guarantee (% of time) |"
    yield "|---|---|---|---|---|"
    for line in study.lines:
        j = f"{line.j.mean:.2f} [{line.j.low:.2f}, {line.j.high:.2f}]"
        yield f"| {line.variant} | {line.contender} | {j} | {line.late:.1f} | {line.below:.2f} |"
