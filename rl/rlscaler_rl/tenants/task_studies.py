"""The first experiments of HRAC (arXiv 2508.10253) on the tasks of a public trace, beside the paper's figures."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from rlscaler_core.decision.types import Float
from rlscaler_rl.results.document import Document, Progress
from rlscaler_rl.results.figures import COLOURS, figure, headline, means_with_bars, save
from rlscaler_rl.results.statistics import Interval, mean_interval
from rlscaler_rl.results.table import Column, Table
from rlscaler_rl.tenants.environment import AS_THE_RULE, SLOTS
from rlscaler_rl.tenants.hrac import Learner, Memory, Options, Trained, homogeneous, play_epoch
from rlscaler_rl.tenants.signals import Loss
from rlscaler_rl.tenants.tasks import Figures, Tasks, TasksEnv
from rlscaler_rl.workloads import Part

OPTIONS = Options(tenants=4, pools=8, looks=10)
"""Groups of machines of a cluster, and clusters that are played side by side."""


def _local(weight: float) -> Callable[[Options], Options]:
    return lambda options: replace(options, local=weight)


def _lost(share: float) -> Callable[[Options], Options]:
    return lambda options: replace(options, loss=Loss(share, "agent"))


EXPERIMENTS: Mapping[str, Mapping[str, Callable[[Options], Options]]] = {
    "use": {"three roles": replace, "one role for all": homogeneous},
    "lambda": {f"lambda {weight:g}": _local(weight) for weight in (0.2, 0.5, 0.8)},
    "information": {f"{share:.0%} lost": _lost(share) for share in (0.0, 0.3, 0.5)},
}
"""Variants by name of each experiment."""

PAPER_USE, PAPER_DEVIATION, PAPER_EPOCHS = 85.0, 0.2, 500
"""Figures of the paper: the use that is reached, in fewer epochs, and the deviation of use that is not exceeded."""
PAPER = ("(the paper)", f"≥ {PAPER_USE:g}", f"< {PAPER_DEVIATION:g}", "", f"< {PAPER_EPOCHS}", "")

TEST_SEED, TUNE_SEED, TEST_CLUSTERS = 999, 777, 16


class TaskLine(Document):
    """One variant on the test clusters, the mean of its trainings."""

    variant: str
    use: Interval
    """Used share of the cores and GiB that are offered, %."""
    deviation: float
    """Standard deviation of use, 0 to 1, over the clusters of a training."""
    waited: float
    """Minutes that the mean task waited."""
    epochs: float | None = None
    """Mean epoch of the first look with 95 % of the gain of training; None for the rule."""
    untrained: list[int] = Field(default_factory=list)
    """Seeds whose checkpoint is the untrained one, as no later look was better."""


class TaskStudy(Document):
    """Result file of an experiment."""

    name: str
    tasks: int
    seeds: list[int]
    epochs: int
    lines: list[TaskLine]
    curves: dict[str, list[tuple[int, float]]]
    """Epoch and use (%) on the tune clusters by variant, the mean of its trainings."""


def study(name: str, tasks: Tasks, count: int, options: Options, seeds: list[int], say: Progress) -> TaskStudy:
    """Train each variant of an experiment with every seed on the first tasks, and play it on the last ones."""

    def clusters(part: Part, pools: int, lost: float) -> TasksEnv:
        return TasksEnv(tasks.part(part), pools, options.tenants, count, lost)

    rule = _play(clusters(Part.TEST, TEST_CLUSTERS, 0.0), TEST_SEED)
    lines, curves = [_line("rule", [rule])], {}
    for variant, change in EXPERIMENTS[name].items():
        played, looks, runs = [], [], []
        for seed in seeds:
            chosen = replace(change(options), seed=seed)
            lost = chosen.loss.share
            tune = clusters(Part.TUNE, OPTIONS.pools, lost)
            trained, uses = _train(chosen, clusters(Part.TRAIN, chosen.pools, lost), tune)
            played.append(_play(clusters(Part.TEST, TEST_CLUSTERS, lost), TEST_SEED, trained))
            looks.append(uses)
            runs.append(trained)
        epochs = [epoch for epoch, _ in runs[0].curve]
        curves[variant] = list(zip(epochs, np.mean(looks, axis=0).tolist(), strict=True))
        lines.append(_line(variant, played, runs))
        say(f"{variant}: use {lines[-1].use.mean:.1f} %, a task waits {lines[-1].waited:.2f} minutes")
    return TaskStudy(name=name, tasks=count, seeds=seeds, epochs=options.epochs, lines=lines, curves=curves)


def _train(options: Options, env: TasksEnv, tune: TasksEnv) -> tuple[Trained, list[float]]:
    """Return the best policies on the tune clusters, and the use (%) there at each look."""
    learner, memory = Learner(options), Memory(options.memory, options.tenants)
    run, uses = Trained(copy.deepcopy(learner.policies), options, 0.0), []
    every = max(options.epochs // options.looks, 1)
    for epoch in range(options.epochs + 1):
        if epoch % every == 0:
            look = _play(tune, TUNE_SEED, learner)
            uses.append(100 * float(look.use.mean()))
            if not run.curve or look.cost.mean() < min(cost for _, cost in run.curve):
                run.policies = copy.deepcopy(learner.policies)
            run.curve.append((epoch, float(look.cost.mean())))
        if epoch < options.epochs:
            run.returns += play_epoch(env, [learner], [memory], epoch)
    return run, uses


def _play(env: TasksEnv, seed: int, by: Learner | Trained | None = None) -> Figures:
    """Play an episode with the most likely actions of policies, or as the rule does."""
    if isinstance(by, Trained):
        learner = Learner(by.options)
        learner.policies = by.policies
        by = learner
    seen, done = env.reset(seed), False
    while not done:
        rule = np.full((*seen.shape[:2], len(SLOTS)), AS_THE_RULE)
        seen, _, done = env.step(rule if by is None else by.act(seen, greedy=True))
    return env.figures()


def _line(variant: str, played: list[Figures], runs: list[Trained] | None = None) -> TaskLine:
    use: Float = np.stack([figures.use for figures in played])
    return TaskLine(
        variant=variant,
        use=mean_interval(100 * use).within(0.0, 100.0),
        deviation=float(use.std(axis=1).mean()),
        waited=float(np.mean([figures.waited.mean() for figures in played])),
        epochs=float(np.mean([run.epochs_to() for run in runs])) if runs else None,
        untrained=[run.options.seed for run in runs or () if run.epochs_to() == 0],
    )


COLUMNS: dict[str, Column] = {
    "variant": "{0.variant}",
    "use (%)": "{0.use:.1f}",
    "its deviation": "{0.deviation:.3f}",
    "a task waits (min)": "{0.waited:.2f}",
    "epochs to 95 % of the gain": "{0.epochs:.0f}",
    "untrained seeds": lambda line: ", ".join(map(str, line.untrained)),
}


def report(done: TaskStudy) -> list[str]:
    """Return the experiment as a table in Markdown, with the paper's figures in its last row."""
    table = Table.of(COLUMNS, done.lines)
    return Table(table.header, [*table.rows, PAPER]).markdown()


def draw(done: TaskStudy, path: Path) -> None:
    """Write a PNG: use of each variant with its interval, and use by epoch, with the paper's figure as a line."""
    picture = figure(10.5, 3.8)
    left, right = picture.subplots(1, 2)
    means_with_bars(left, range(len(done.lines)), [line.use for line in done.lines], color=COLOURS["policy"])
    left.margins(x=0.15)
    left.set_xticks(range(len(done.lines)), [line.variant for line in done.lines])
    for variant, curve in done.curves.items():
        right.plot(*zip(*curve, strict=True), label=variant, linewidth=1.4)
    right.set_xlabel(f"epoch (the paper: below {PAPER_EPOCHS})")
    for axes, label in ((left, "use on test tasks (%)"), (right, "use on tune tasks (%)")):
        axes.axhline(PAPER_USE, color=COLOURS["rule_tuned"], linestyle="--", label=f"the paper: {PAPER_USE:g} %")
        axes.set_ylabel(label)
        axes.legend(loc="best", fontsize=8)
    trainings = f"{len(done.seeds)} seed{'' if len(done.seeds) == 1 else 's'} of {done.epochs} epochs"
    headline(picture, f"{done.name}: {done.tasks:,} tasks, {trainings}", 11)
    save(picture, path)
