"""Studies of agents that share a pool: one change at a time, each with several seeds, on the same test pools.

A study of training trains every variant and plays it. A study of playing plays trained agents under other
circumstances, with weighted max-min beside them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from rlscaler_core.decision.types import Float
from rlscaler_core.models import load_bundled
from rlscaler_rl.results.document import Document, Progress
from rlscaler_rl.results.statistics import Interval, mean_interval, ratio_interval
from rlscaler_rl.results.table import Table
from rlscaler_rl.tenants.changes import Change
from rlscaler_rl.tenants.draw import TEST_LOADS, Request, draw
from rlscaler_rl.tenants.evaluate import Agents, play_together
from rlscaler_rl.tenants.hrac import Options, homogeneous, played_alike, train_together
from rlscaler_rl.tenants.play import Played, play
from rlscaler_rl.tenants.signals import NONE_LOST, Loss


def _with(**changes: Any) -> Callable[[Options], Options]:
    return lambda options: replace(options, **changes)


def _of(tenants: int) -> Callable[[Request], Request]:
    """Return a change to pools of `tenants` tenants; large pools are fewer, so that each variant takes as long."""
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
"""Studies of playing by name: variants by name, each a change of the request and the information that is lost."""


class Line(Document):
    """One contender in one variant."""

    variant: str
    contender: str
    j: Interval
    """J of a tenant, with the interval over pools and seeds."""
    against: Interval | None
    """J over that of weighted max-min on the same pools, less one, in %; below 0 is better."""
    late: float
    """Late requests of the mean tenant, %."""
    below: float
    """Time below the requested guarantee, %."""


class Study(Document):
    """Result file of a study."""

    name: str
    seeds: list[int]
    epochs: int
    """Number of epochs of each training."""
    pools: int
    lines: list[Line]
    returns: dict[str, list[float]] = Field(default_factory=dict)
    """Mean reward of the pools in every epoch, over the seeds, by variant of the training; empty without a training."""
    untrained: dict[str, list[int]] = Field(default_factory=dict)
    """Seeds by variant whose checkpoint is the untrained one, as no later look was better on the tune loads."""


def tested(options: Options, pools: int) -> Request:
    """Return the pools that every variant of a study plays."""
    return Request(options.tenants, pools, options.hours, options.tightness, TEST_LOADS, cpu=options.cpu, seed=999)


def study_training(name: str, options: Options, seeds: list[int], pools: int, folder: Path, say: Progress) -> Study:
    """Train the variants of a study with every seed and play them.

    `folder` keeps the trainings of all studies by their options; a training that lies there is not repeated. Raises
    ModelError where a folder in it has no training.
    """
    request = tested(options, pools)
    variants = {
        variant: [replace(change(options), seed=seed) for seed in seeds] for variant, change in TRAINING[name].items()
    }
    _train_missing([single for several in variants.values() for single in several], folder, say)
    rule = _max_min(request)
    lines, returns, untrained = [_line("forecast rule", "weighted max-min", [rule], request)], {}, {}
    for variant, several in variants.items():
        agents = [Agents(folder / _name(single)) for single in several]
        lines.append(_line(variant, "all agents", play_together(agents, request), request, rule))
        returns[variant] = [float(value) for value in np.mean([agent.returns for agent in agents], axis=0)]
        untrained[variant] = _untrained(agents)
        say(f"{variant}: J {lines[-1].j.mean:.3f}")
    return Study(
        name=name,
        seeds=seeds,
        epochs=options.epochs,
        pools=pools,
        lines=lines,
        returns=returns,
        untrained=untrained,
    )


def study_playing(name: str, trained: list[Agents], options: Options, pools: int, say: Progress) -> Study:
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
    untrained = {"all agents": _untrained(trained)}
    return Study(name=name, seeds=seeds, epochs=epochs, pools=pools, lines=lines, untrained=untrained)


def _untrained(several: list[Agents]) -> list[int]:
    return [int(agents.options["seed"]) for agents in several if agents.untrained]


def _train_missing(wanted: list[Options], folder: Path, say: Progress) -> None:
    """Train the options that have no folder yet; those that play the same setting are trained side by side."""
    groups: dict[object, list[Options]] = {}
    for options in wanted:
        if not (folder / _name(options)).is_dir():
            groups.setdefault(played_alike(options), []).append(options)
    for group in groups.values():
        say(f"{len(group)} trainings of {group[0].epochs} epochs side by side")
        for trained in train_together(group, say):
            trained.save(folder / _name(trained.options))


def _name(options: Options) -> str:
    """Return the name of a training's folder: the same options, the same folder."""
    return hashlib.sha256(json.dumps(asdict(options), sort_keys=True).encode()).hexdigest()[:16]


def _max_min(request: Request, loss: Loss | None = None) -> Played:
    drawn = draw(request)
    rule = load_bundled("rule")
    return play(drawn.scenarios, drawn.tenants, drawn.gpus, rule, "MaxMinFair", loss, drawn.changes)


def _line(variant: str, contender: str, several: list[Played], request: Request, rival: Played | None = None) -> Line:
    """Return the figures of agents of several seeds, or of a rule, on the pools of a request."""
    pools = np.stack([_mean_of_pools(played.j, request) for played in several])
    return Line(
        variant=variant,
        contender=contender,
        j=mean_interval(pools).within(0.0),
        against=None if rival is None else ratio_interval(pools, _mean_of_pools(rival.j, request)),
        late=float(np.mean([played.late_percent.mean() for played in several])),
        below=float(np.mean([100 * played.below.mean() for played in several])),
    )


def _mean_of_pools(values: Float, request: Request) -> Float:
    return values.reshape(request.pools, request.tenants).mean(axis=1)


COLUMNS = {
    "variant": "{0.variant}",
    "who decides": "{0.contender}",
    "J of a tenant": "{0.j:.2f}",
    "J against weighted max-min": "{0.against:+.1f %}",
    "late (%)": "{0.late:.1f}",
    "below guarantee (%)": "{0.below:.2f}",
}


def report(study: Study) -> list[str]:
    """Return the study as a table in Markdown."""
    return [*Table.of(COLUMNS, study.lines).markdown(), *map(_said_of_untrained, study.untrained.items())]


def _said_of_untrained(entry: tuple[str, list[int]]) -> str:
    variant, seeds = entry
    which = f"the untrained one for seed {', '.join(map(str, seeds))}" if seeds else "a trained one for every seed"
    return f"{variant}: the checkpoint is {which}"
