"""Studies of agents that share a pool: one change at a time, each with several seeds, on the same test pools.

A study of training trains every variant and plays it; a study of playing takes agents that were trained and plays them
under other circumstances, with weighted max-min beside them.
"""

from __future__ import annotations

import hashlib
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
from rlscaler_rl.tenants.evaluate import Agents, play_together
from rlscaler_rl.tenants.hrac import Options, homogeneous, played_alike, train_together
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
    against: Figure | None
    """J over that of weighted max-min on the same pools, less one, in %; below 0 is better."""
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
    returns: dict[str, list[float]] = {}
    """Of a study of training by variant: the mean reward of the pools in every epoch, over the seeds."""


def tested(options: Options, pools: int) -> Request:
    """The pools that every variant of a study plays."""
    return Request(options.tenants, pools, options.hours, options.tightness, TEST_LOADS, cpu=options.cpu, seed=999)


def study_training(name: str, options: Options, seeds: list[int], pools: int, folder: Path, say: Say) -> Study:
    """Train the variants of a study with every seed and play them.

    `folder` keeps the trainings of all studies by their options; what lies there already is not trained again. Raises
    ModelError where a folder in it is no training's.
    """
    request = tested(options, pools)
    variants = {
        variant: [replace(change(options), seed=seed) for seed in seeds] for variant, change in TRAINING[name].items()
    }
    _train_missing([one for several in variants.values() for one in several], folder, say)
    rule = _max_min(request)
    lines, returns = [_line("forecast rule", "weighted max-min", [rule], request)], {}
    for variant, several in variants.items():
        agents = [Agents(folder / _name(one)) for one in several]
        lines.append(_line(variant, "all agents", play_together(agents, request), request, rule))
        returns[variant] = [float(value) for value in np.mean([one.returns for one in agents], axis=0)]
        say(f"{variant}: J {lines[-1].j.mean:.3f}")
    return Study(name=name, seeds=seeds, epochs=options.epochs, pools=pools, lines=lines, returns=returns)


def study_playing(name: str, trained: list[Agents], options: Options, pools: int, say: Say) -> Study:
    """Play trained agents, those of one seed after those of the other, under the circumstances of a study."""
    lines = []
    for variant, (change, loss) in PLAYING[name].items():
        request = change(tested(options, pools))
        rule = _max_min(request, loss)
        lines.append(_line(variant, "weighted max-min", [rule], request))
        lines.append(_line(variant, "all agents", play_together(trained, request, loss), request, rule))
        say(f"{variant}: J {lines[-1].j.mean:.3f} against {lines[-2].j.mean:.3f}")
    epochs = min(int(agents.options["epochs"]) for agents in trained)
    seeds = [int(agents.options["seed"]) for agents in trained]
    return Study(name=name, seeds=seeds, epochs=epochs, pools=pools, lines=lines)


def _train_missing(wanted: list[Options], folder: Path, say: Say) -> None:
    """Train what is not in `folder`, those that play the same setting side by side."""
    groups: dict[object, list[Options]] = {}
    for options in wanted:
        if not (folder / _name(options)).is_dir():
            groups.setdefault(played_alike(options), []).append(options)
    for group in groups.values():
        say(f"{len(group)} trainings of {group[0].epochs} epochs side by side")
        for trained in train_together(group, say):
            trained.save(folder / _name(trained.options))


def _name(options: Options) -> str:
    """The folder of a training: the same options, the same folder."""
    return hashlib.sha256(json.dumps(asdict(options), sort_keys=True).encode()).hexdigest()[:16]


def _max_min(request: Request, loss: Loss | None = None) -> Played:
    drawn = draw(request)
    rule = load_bundled("rule")
    return play(drawn.scenarios, drawn.tenants, drawn.gpus, rule, "MaxMinFair", loss, drawn.changes)


def _line(variant: str, contender: str, found: list[Played], request: Request, rival: Played | None = None) -> Line:
    pools = [_of_pools(played.j, request) for played in found]
    drawn_often = weights(Design(1, request.pools))
    resampled = [drawn_often @ one for one in pools]
    against = None
    if rival is not None:
        other = _of_pools(rival.j, request)
        ratios = over_seeds([100 * (one / (drawn_often @ other) - 1) for one in resampled])
        against = _figure(100 * (np.mean(pools) / other.mean() - 1), ratios)
    return Line(
        variant=variant,
        contender=contender,
        j=_figure(np.mean(pools), over_seeds(resampled)),
        against=against,
        late=float(np.mean([played.late_percent.mean() for played in found])),
        below=float(np.mean([100 * played.below.mean() for played in found])),
    )


def _figure(mean: np.floating[Any], resampled: Float) -> Figure:
    interval = Interval.of(float(mean), resampled)
    return Figure(mean=interval.mean, low=interval.low, high=interval.high)


def _of_pools(values: Float, request: Request) -> Float:
    return values.reshape(request.pools, request.tenants).mean(axis=1)


def markdown(study: Study) -> Iterator[str]:
    """Yield the study as a table in Markdown."""
    heads = "variant", "who decides", "J of a tenant", "J against weighted max-min", "late (%)", "below guarantee (%)"
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for line in study.lines:
        j = f"{line.j.mean:.2f} [{line.j.low:.2f}, {line.j.high:.2f}]"
        one = line.against
        against = "-" if one is None else f"{one.mean:+.1f} % [{one.low:+.1f}, {one.high:+.1f}]"
        yield f"| {line.variant} | {line.contender} | {j} | {against} | {line.late:.1f} | {line.below:.2f} |"
