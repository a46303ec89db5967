"""The size of a target's pods: `spec.targets.*.resources`."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from rlscaler_core.api.base import Model, Rule

Quantity = Annotated[
    str, Field(min_length=1, max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")
]
"""An amount as Kubernetes writes it, such as `500m` cores or `2Gi` bytes."""

_DECIMAL = {"m": Decimal("0.001")} | {unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)}
_UNITS = _DECIMAL | {f"{unit.upper()}i": Decimal(1024) ** power for power, unit in enumerate("kMGTPE", 1)}


def amount(quantity: str) -> float:
    """Return the number that a `Quantity` stands for: cores, or bytes."""
    number = quantity.rstrip("mkKMGTPEi")
    return float(Decimal(number) * _UNITS.get(quantity[len(number) :], Decimal(1)))


def _compared(first: str, second: str, how: str) -> str:
    """Return CEL that compares two quantities of the same object."""
    return f"quantity(self.{first}).compareTo(quantity(self.{second})) {how} 0"


class SizeRange(Model):
    """Range of one container's request of a resource."""

    min: Quantity
    """The least that it asks for, such as `250m` cores or `512Mi`."""
    max: Quantity
    """The most that it asks for."""
    step: Quantity | None = None
    """Requests are whole multiples of it, but for `min` and `max`; default: a twentieth of `max`."""

    rules = (
        Rule(
            cel="quantity(self.min).isGreaterThan(quantity('0'))",
            holds=lambda size: size.least > 0,
            message="min must be above 0: a pod without a request may be evicted at any time",
            field="min",
        ),
        Rule(
            cel=_compared("min", "max", "<="),
            holds=lambda size: size.least <= size.most,
            message="min must not exceed max: lower min or raise max",
            field="min",
        ),
        Rule(
            cel="!has(self.step) || (quantity(self.step).isGreaterThan(quantity('0')) && "
            f"{_compared('step', 'max', '<=')})",
            holds=lambda size: size.step is None or 0 < amount(size.step) <= size.most,
            message="step must be above 0 and not exceed max: correct step, or remove it for a twentieth of max",
            field="step",
        ),
    )

    @property
    def least(self) -> float:
        """`min` in cores or bytes."""
        return amount(self.min)

    @property
    def most(self) -> float:
        """`max` in cores or bytes."""
        return amount(self.max)

    @property
    def granularity(self) -> float:
        """`step` in cores or bytes, or its default."""
        return self.most / 20 if self.step is None else amount(self.step)


class PodResources(Model):
    """Requests of a target's pods, and whether the operator resizes pods. A resource without a range is not sized."""

    mode: Literal["Recommend", "InPlace"] = "Recommend"
    """`Recommend` shows the size in `status.podSizes` and changes nothing. `InPlace` also resizes the pods that run,
    while the policy acts, and has new ones begin with it; the administrator allows it by `operator.resize` and
    `operator.resizeNewPods` of the chart."""
    container: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None = (
        None
    )
    """The container that is sized; default: the pods' only one."""
    cpu: SizeRange | None = None
    """Range of its CPU request. Limits move in the same ratio."""
    memory: SizeRange | None = None
    """Range of its memory request. Limits move in the same ratio."""

    rules = (
        Rule(
            cel="has(self.cpu) || has(self.memory)",
            holds=lambda resources: resources.cpu is not None or resources.memory is not None,
            message="nothing is sized: set cpu, memory or both",
            field="",
        ),
    )
