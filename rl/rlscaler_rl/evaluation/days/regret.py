"""Regret: how far every contender is above perfect foresight, and how much of what can be won without it is won."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_rl.evaluation.days.contenders import CAUSAL, PLANNER
from rlscaler_rl.evaluation.days.table import DayTable, Difference, by_origin, difference
from rlscaler_rl.evaluation.statistics import FEWEST_UNITS, Design, Interval, weights

_RIVALS = {"untuned": "the best untuned autoscaler", "tuned": "the best of those tuned on the past"}
"""Whom a policy is measured against on the way to the causal plan, by role."""


def closed_share(table: DayTable, policy: str, rival: str) -> Interval | None:
    """Give the share of the distance from the `rival` to the causal plan that the `policy` closes, in percent.

    100 is the causal plan, 0 the rival, below 0 worse than the rival. Distances are J over that of the causal plan, in
    the mean over origins. None where one of the three did not play or the rival is not above the causal plan. Without
    bounds where origins are too few, or where the interval of the distance itself reaches 0.
    """
    apart = [_means(table, name, CAUSAL) for name in (policy, rival)]
    own, whole = apart
    if not len(own) or len(own) != len(whole) or whole.mean() <= 0:
        return None
    share = 100 * float(1 - own.mean() / whole.mean())
    if len(own) < FEWEST_UNITS:
        return Interval(share, -np.inf, np.inf)
    drawn = weights(Design(1, len(own)))
    distance = drawn @ whole
    if Interval.of(whole.mean(), distance).low <= 0:
        return Interval(share, -np.inf, np.inf)
    return Interval.of(share, 100 * (1 - (drawn @ own) / distance))


def _means(table: DayTable, policy: str, rival: str) -> Float:
    """Give J over that of the rival, minus 1, in percent, as the mean of each origin's loads."""
    return np.array([np.mean(list(loads.values())) for loads in by_origin(table, policy, rival).values()])


def regret_markdown(table: DayTable) -> Iterator[str]:
    """Give the lines on regret: a table of all contenders, then what each policy closes of the distance."""
    shown = table.contenders()
    references = [name for name in (PLANNER, CAUSAL) if name in shown]
    heads = [f"above {shown[name].label[0].lower()}{shown[name].label[1:]}, % | 95 % interval" for name in references]
    yield f"| J of | {' | '.join(heads)} | worst load |"
    yield f"|---|{'---|---|' * len(references)}---|"
    rows = [(name, [difference(table, name, other) for other in references]) for name in shown if name != references[0]]
    for name, found in sorted(rows, key=lambda row: _mean(row[1])):
        first = next(one for one in found if one is not None)
        cells = [_cell(one, name == other) for one, other in zip(found, references, strict=True)]
        yield f"| {shown[name].label} | {' | '.join(cells)} | {first.worst_load} {first.worst:+.1f} |"
    if CAUSAL in shown:
        yield ""
        yield from _closed(table, [name for name, row in shown.items() if row.role == "policy"])


def _mean(found: Sequence[Difference | None]) -> float:
    return next((one.mean for one in found if one is not None), np.inf)


def _cell(found: Difference | None, same: bool) -> str:
    if found is None or same:
        return "- | -"
    return f"{found.mean:+.1f} | {_bounds(found.low, found.high, '+.1f')}"


def _bounds(low: float, high: float, form: str) -> str:
    return "-" if np.isinf(low) else f"{low:{form}} to {high:{form}}"


def _closed(table: DayTable, policies: Sequence[str]) -> Iterator[str]:
    """Say what each policy closes of the distance from the best autoscaler as it comes, and from the best tuned one."""
    shown = table.contenders()
    for policy, (role, words) in product(policies, _RIVALS.items()):
        if not any(row.role == role for row in shown.values()):
            continue
        best = table.best(role)
        share = closed_share(table, policy, best)
        if share is None:
            yield f"{shown[policy].label}: {shown[best].label}, {words}, is not above the causal plan."
            continue
        yield (
            f"{shown[policy].label} closes {share.mean:.0f} % of the distance from {shown[best].label}, {words}, "
            f"to the causal plan (95 % interval: {_bounds(share.low, share.high, '.0f')})."
        )
