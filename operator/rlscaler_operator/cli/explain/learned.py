"""Parts of the page of a record about learned values: forecasts, error budget, scale-ups and pod sizes."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlscaler_core.decision.error_budget import LONGEST_SECONDS
from rlscaler_core.decision.exceptions import ForecasterStateError
from rlscaler_core.decision.forecaster import outlook, rises
from rlscaler_core.decision.forecaster.memory import LEVELS, calendar_of, recent_of
from rlscaler_core.decision.forecaster.storage import from_text
from rlscaler_core.decision.throughput import AFTER, AGAIN, BEFORE, FEWER, MORE, PHASE, UNTIL, Phase
from rlscaler_core.decision.types import POOLS
from rlscaler_core.vertical.quantities import readable, text
from rlscaler_operator.cli.terminal import UNKNOWN, simple_table
from rlscaler_operator.state.pod_sizes import RESOURCES

Json = dict[str, Any]

AHEAD_MINUTES = 1440
"""Horizon in which the next likely jump of the load is searched."""

LIKELY = 0.05
"""Probability below which no jump is named."""


def forecasts(record: Json) -> RenderableType | None:
    """Return coverage of the forecasts and the next jump of the load; None where the record holds no forecaster."""
    text = (record.get("state") or {}).get("forecaster")
    if text is None:
        return None
    try:
        recent, calendar = from_text(text)
    except ForecasterStateError as error:
        return Text(f"What was learned of the load cannot be shown: {error}.\n")
    return Group(_coverage(recent), Text(_jumps(calendar, float(record["time"])) + "\n"))


def error_budget(record: Json) -> RenderableType | None:
    """Return the share of the error budget that is left and its price of lateness; None where the record has none."""
    budget, state = record.get("error_budget"), record.get("state") or {}
    if budget is None or state.get("counted_requests") is None:
        return None
    objective, price = (record.get("params") or {}).get("objective"), budget["late_price"]
    counted, newest = "no request was counted yet", state["counted_time"]
    stale = newest is None or float(record["time"]) - newest > LONGEST_SECONDS
    if newest is not None:
        counted = f"{state['counted_late']:.0f} late of {state['counted_requests']:.0f} requests counted"
        counted += f", the last {(float(record['time']) - newest) / 60:.0f} min ago" if stale else ""
    if objective is None:
        text = f"The error budget steers nothing (slo.errorBudget Observe); {counted}."
    elif budget["left"] is None:
        few = "" if stale else f", and {100 * objective:g} % in time allows too few to say"
        text = f"The error budget is not known yet: {counted}{few}."
    else:
        text = f"{100 * budget['left']:.0f} % of the error budget of {100 * objective:g} % in time is left: {counted}."
    if price is not None:
        text += f" One percent of late requests is worth {price:.2f} replicas"
        text += f", {state['price_factor']:.2f} times what is set." if objective is not None else "."
    return Text(text + "\n")


def scale_up(record: Json) -> RenderableType | None:
    """Return the verdict on the last scale-up of a stream's consumers; None where none was measured."""
    row = (record.get("state") or {}).get("trial")
    if row is None:
        return None
    trial = np.array([math.nan if value is None else value for value in row])
    messages = (trial[column] for column in (BEFORE, AFTER, AGAIN))
    before, after, again = (UNKNOWN if math.isnan(value) else f"{value:.3g}" for value in messages)
    fewer, more = (f"{trial[column]:.0f}" for column in (FEWER, MORE))
    rates = f"{fewer} consumers processed {before} messages/s, and {more} consumers {after}."
    until = UNKNOWN if math.isnan(trial[UNTIL]) else datetime.fromtimestamp(trial[UNTIL], UTC).strftime("%H:%M:%S UTC")
    verdicts = {
        Phase.RAISED: "That is being measured.",
        Phase.UNDONE: f"So the scale-up is undone, to {fewer} consumers.",
        Phase.HELD: f"So the scale-up was undone: no more than {fewer} consumers until {until}.",
        Phase.EXCUSED: f"It was undone, but {fewer} consumers processed {again} then: more are not what slowed them.",
    }
    return Text(f"{rates} {verdicts[Phase(int(trial[PHASE]))]}\n")


def sizes_of(sizing: Json) -> dict[str, str]:
    """Return by pool the recommended requests of its pods, and the usage of the pod that uses most."""
    texts = {}
    rows = zip(sizing["pools"], sizing["size"], sizing["ranges"]["most"], sizing["used"], strict=True)
    for pool, size, most, used in rows:
        parts = [
            f"{_quantity(name, wanted, bound)} {name} (used {UNKNOWN if now is None else _quantity(name, now)})"
            for name, wanted, bound, now in zip(RESOURCES, size, most, used, strict=True)
            if wanted is not None
        ]
        texts[pool] = f"should ask for {', '.join(parts)}" if parts else "too little was seen to say what they need"
    return texts


def _quantity(resource: str, value: float, most: float = math.inf) -> str:
    return text(resource, readable(resource, value, most))


def _coverage(row: Any) -> Table:
    """Return a table of the shares of forecasts that held, beside the shares that should hold."""
    recent = recent_of(row)
    table = simple_table("Forecast held", "horizon s", "forecasts", *(f"of {100 * level:g} %" for level in LEVELS))
    for pool, covered in enumerate(rises.coverage(recent)[0]):
        if recent.horizon[0, pool] > 0:
            shares = [UNKNOWN if math.isnan(share) else f"{100 * share:.1f} %" for share in covered]
            table.add_row(POOLS[pool], f"{recent.horizon[0, pool]:.0f}", f"{recent.judged[0, pool]:.0f}", *shares)
    return table


def _jumps(row: Any, time: float) -> str:
    """Return the number of remembered jumps of the load, and the time of the next likely one."""
    number = float(calendar_of(row).jumps[0])
    if number < outlook.LEAST_JUMPS:
        return "No jumps of the load are known."
    remembered = f"{number:.0f} jumps of the load are remembered"
    minutes = time + 60.0 * np.arange(1, AHEAD_MINUTES, dtype=np.float64)
    n = len(minutes)
    coming = outlook.announced(np.repeat(row, n, axis=0), minutes, np.zeros(n), np.zeros(n, np.bool_))
    likely = np.flatnonzero(coming.probability >= max(LIKELY, 0.5 * float(coming.probability.max())))
    if coming.probability.max() < LIKELY:
        return f"{remembered}; none is likely within a day."
    first = int(likely[0])
    when = datetime.fromtimestamp(float(minutes[first]) // 60 * 60, UTC).strftime("%H:%M UTC")
    return f"{remembered}; the next likely one comes at {when} ({100 * coming.probability[first]:.0f} %)."
