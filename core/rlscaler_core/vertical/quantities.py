"""Amounts of CPU and memory as they are written into Kubernetes: rounded up, then as text. Pure."""

from __future__ import annotations

import math

MIB = 1 << 20


def rounded(resource: str, amount: float) -> float:
    """Round cores or bytes up to the precision of a Kubernetes quantity: thousandths of a core, or whole bytes."""
    return math.ceil(round(amount * 1000, 6)) / 1000 if resource == "cpu" else float(math.ceil(amount))


def readable(resource: str, amount: float, most: float = math.inf) -> float:
    """Round a request up for people: memory to whole MiB, where that is not above `most`. NaN stays NaN."""
    if math.isnan(amount):
        return amount
    whole = rounded(resource, amount) if resource == "cpu" else float(math.ceil(amount / MIB) * MIB)
    return whole if whole <= most else rounded(resource, amount)


def text(resource: str, amount: float) -> str:
    """Write an amount that was rounded as a quantity: thousandths of a core, and MiB where they are whole."""
    if resource == "cpu":
        return f"{round(amount * 1000)}m"
    return f"{int(amount) // MIB}Mi" if amount and amount % MIB == 0 else str(int(amount))
