"""What several seeds of one training say together: a network is one draw of it, as a load is one of its origin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rlscaler_rl.evaluation.days.table import DayTable, by_origin
from rlscaler_rl.evaluation.statistics import FEWEST_UNITS, Design, Interval, over_seeds, weights


def pairs_difference(table: DayTable, pairs: Sequence[tuple[str, str]]) -> Interval | None:
    """Give J of the first of each pair over that of the second, minus 1, in percent: the mean over pairs and origins.

    The bootstrap draws pairs and origins. Fewer than three origins decide nothing: their interval is without bounds.
    None where there is no pair, or where one contender did not play a load that the others played.
    """
    each = [by_origin(table, one, other) for one, other in pairs]
    values = np.array([[np.mean(list(loads.values())) for loads in origins.values()] for origins in each])
    if not values.size:
        return None
    if values.shape[1] < FEWEST_UNITS:
        return Interval(float(values.mean()), -np.inf, np.inf)
    drawn = weights(Design(1, values.shape[1]))
    return Interval.of(float(values.mean()), over_seeds([drawn @ one for one in values]))


def seeds_difference(table: DayTable, rival: str) -> Interval | None:
    """Give the difference of all networks of the table against the `rival`, as `pairs_difference` has it."""
    return pairs_difference(table, [(name, rival) for name in table.networks])


def seeds_markdown(table: DayTable) -> Iterator[str]:
    """Give the lines that compare all networks together with everybody else; none where there are fewer than two."""
    if len(table.networks) < 2:
        return
    yield f"| {len(table.networks)} networks together against | mean difference of J, % | 95 % interval | |"
    yield "|---|---|---|---|"
    for name, row in table.contenders().items():
        if name in table.networks or (found := seeds_difference(table, name)) is None:
            continue
        bounds = "-" if np.isinf(found.low) else f"{found.low:+.1f} to {found.high:+.1f}"
        yield f"| {row.label} | {found.mean:+.1f} | {bounds} | {found.verdict} |"
