"""Contenders: replicas alone, sizes by the VPA, sizes by rlscaler, and sizes that are decided with the replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlscaler_core.vertical.recommend import Ranges, Usage, nothing_known, recommend
from rlscaler_dev.demo.records import Float
from rlscaler_dev.demo.vertical.services import (
    MEMORY_LIMIT,
    MIB,
    STEP_SECONDS,
    STEPS_A_DAY,
    Figures,
    Pods,
    Service,
    Size,
    Use,
    day,
    replicas,
)
from rlscaler_dev.demo.vertical.vpa import Vpa

Reward = Literal["cost", "performance"]

SCALES = (1.0, 0.5, 2.0, 4.0)
"""Pods to choose from, by the load that they carry over that of the template. Of equals the first is taken."""
RANGE = (0.1, 2.0)
"""Bounds of sizes over the template's."""
STEP = (0.05, 64 * MIB)

Look = Callable[[float, Use, Float], Size]
"""Takes the time in seconds, the use of the pods and the memory of those that were killed; returns the size."""


def fixed(size: Size) -> Look:
    """Leave pods as the template has them."""
    return lambda time, use, killed: size


def recommended(size: Size) -> Look:
    """Follow the recommendation of rlscaler's operator."""
    least, most = (np.multiply(size, bound) for bound in RANGE)
    ranges = Ranges(*(np.array([row]) for row in (least, most, STEP)))
    known = nothing_known(1)

    def look(time: float, use: Use, killed: Float) -> Size:
        nonlocal known
        memory = max([float(use.memory.max()), *(MEMORY_LIMIT * killed)])
        known = recommend(ranges, known, Usage(np.array([time]), np.array([[use.cores.max(), memory]])))
        cores, amount = np.where(np.isnan(known.size[0]), size, known.size[0])
        return float(cores), float(amount)

    return look


def by_vpa(size: Size) -> Look:
    """Follow the recommender and updater of the VerticalPodAutoscaler."""
    vpa = Vpa(size)
    least, most = ((size[0] * bound, size[1] * bound) for bound in RANGE)

    def look(time: float, use: Use, killed: Float) -> Size:
        vpa.observe(time, use.cores, use.memory, killed)
        return vpa.update(time, least, most, STEPS_A_DAY)

    return look


@dataclass(frozen=True)
class Contender:
    """A way to size pods."""

    name: str
    title: str
    sizer: Callable[[Size], Look]
    together: bool = False
    """Whether the pods' scale is chosen with their number, by the speed that was measured on the day before."""


CONTENDERS = (
    Contender("alone", "replicas alone", fixed),
    Contender("vpa", "VPA", by_vpa),
    Contender("rlscaler", "rlscaler", recommended),
    Contender("together", "rlscaler, sizes with replicas", recommended, together=True),
)


def template(service: Service, rate: Float, guess: float, scale: float = 1.0) -> Size:
    """Return `guess` times the highest use of a pod on a day."""
    pods = Pods(service, 1)
    uses = [pods.use(_names(replicas(now, scale)), now) for now in rate]
    return guess * max(float(use.cores.max()) for use in uses), guess * max(float(use.memory.max()) for use in uses)


def played(service: Service, rate: Float, size: Size, look: Look, scale: float) -> tuple[Figures, Size]:
    """Play a day without a cluster, and return its figures and the last size."""
    pods, figures = Pods(service, 0), Figures()
    for step, now in enumerate(rate):
        names = _names(replicas(now, scale))
        use = pods.use(names, now)
        killed = figures.add(service, use, np.full(len(names), size[0]), np.full(len(names), size[1]))
        for name, gone in zip(names, killed, strict=True):
            if gone:
                pods.kill(name)
        size = look(STEP_SECONDS * step, use, use.memory[killed])
    return figures, size


def chosen_scale(service: Service, rate: Float, reward: Reward) -> float:
    """Return the scale that was best on a day: the cheapest, or the one with the least late and the fastest answers.

    Few large pods answer a request faster than many small ones; many small ones follow the load more closely.
    """

    def loss(scale: float) -> tuple[float, ...]:
        size = template(service, rate, 1.0, scale)
        figures, _ = played(service, rate, size, recommended(size), scale)
        measured = figures.late + figures.killed, figures.response_ms, figures.dollars
        return measured if reward == "performance" else (figures.dollars, *measured[:2])

    return min(SCALES, key=loss)


@dataclass
class Begun:
    """A contender's service after the day from which it learned."""

    look: Look
    template: Size
    """Size that new pods start with."""
    size: Size
    """Size that pods should have now."""
    scale: float


def begun(contender: Contender, service: Service, seed: int, guess: float, reward: Reward) -> Begun:
    """Play the day before without a cluster."""
    rate = day(service, seed)
    scale = chosen_scale(service, rate, reward) if contender.together else 1.0
    first = template(service, rate, guess, scale)
    look = contender.sizer(first)
    _, size = played(service, rate, first, look, scale)
    return Begun(look, first, size, scale)


def _names(count: int) -> list[str]:
    return [str(number) for number in range(count)]
