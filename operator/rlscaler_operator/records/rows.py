"""One row of the decision function's tables as plain JSON, and back without loss. Pure.

NaN is null and infinity is "inf" or "-inf", since the three have different meanings (unknown; never seen; no limit).
Floats keep every bit, since JSON carries the shortest text that reads back as the same number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.exceptions import ForecasterStateError
from rlscaler_core.decision.forecaster.memory import is_kept
from rlscaler_core.decision.forecaster.storage import from_text, to_text
from rlscaler_core.decision.tables import initial_state, make_params, make_samples
from rlscaler_core.decision.types import Params, Rows, Samples, State
from rlscaler_operator.exceptions import RecordError

Json = dict[str, Any]
Table = TypeVar("Table", bound=Rows)

SERIES = ("rate_time", "rate_value")
"""Columns of `State` that fill from the end; empty slots at their front are left out."""

FORECASTER = ("load_recent", "load_calendar")
"""Columns of `State` that are recorded together, as one text."""

SPARSE = ("belief", "headroom", "trial")
"""Columns of `State` that are left out where they are empty."""

SLOTS = {
    "event_time": "event_time",
    "event_change": "event_time",
    "recommendation_time": "recommendation_time",
    "recommendation": "recommendation_time",
}
"""Columns of `State` (2, slots), each with the column whose NaN marks empty slots; those at the end are left out."""


def encode(table: Params | Samples, index: int = 0) -> Json:
    """Return one row of a table by the names of the columns."""
    return {field.name: plain(getattr(table, field.name)[index]) for field in fields(table)}


def encode_state(state: State, index: int = 0) -> Json:
    """Return one row without the empty slots of its histories; `rate_slots` is the length of the rates' history.

    The state of the forecaster stands under `forecaster` as text; null where it has none.
    """
    learned = to_text(state.load_recent[index], state.load_calendar[index]) if is_kept(state.load_recent) else None
    row: Json = {"rate_slots": state.rate_time.shape[1], "forecaster": learned}
    empty = int(np.isnan(state.rate_time[index]).sum())
    for field in fields(state):
        if field.name in FORECASTER or (field.name in SPARSE and np.isnan(getattr(state, field.name)[index]).all()):
            continue
        values = getattr(state, field.name)[index]
        if field.name in SERIES:
            values = values[empty:]
        elif field.name in SLOTS:
            used = ~np.isnan(getattr(state, SLOTS[field.name])[index]).all(axis=0)
            values = values[:, : int((used * np.arange(1, len(used) + 1)).max())]
        row[field.name] = plain(values)
    return row


def decode_params(row: Mapping[str, Any]) -> Params:
    """Read parameters. Raises RecordError."""
    # Releases before these columns did not split by load, and took the declared capacity for true and starts for free.
    before = {"split_by_load": False, "start_seconds": 0.0}
    return _read(Params, row, lambda columns: make_params(1, **{**before, **columns}))


def decode_samples(row: Mapping[str, Any]) -> Samples:
    """Read samples; a missing column gets its default. Raises RecordError."""
    return _read(Samples, row, lambda columns: make_samples(1, **columns))


def decode_state(row: Mapping[str, Any]) -> State:
    """Read a state; a missing column keeps its initial value. Raises RecordError."""
    try:
        state = initial_state(1, len(row["stack"]), int(row["rate_slots"]), forecaster=False)
        if row.get("forecaster") is not None:
            recent, calendar = from_text(row["forecaster"])
            state = replace(state, load_recent=recent, load_calendar=calendar)
    except ForecasterStateError as error:
        raise RecordError(f"state.{error}: replay it with the release that wrote it") from error
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"state: {error!r} is missing or malformed") from error
    _refuse_unknown(State, row, {"rate_slots", "forecaster"})
    for field in fields(state):
        if field.name not in row:
            continue
        into = getattr(state, field.name)[0]
        try:
            values = _array(row[field.name], into.dtype)
            if field.name in SERIES:
                into[len(into) - len(values) :] = values
            elif field.name in SLOTS:
                into[:, : values.shape[1]] = values
            elif values.shape != into.shape:
                raise ValueError(
                    f"shape {values.shape}, in this release {into.shape}: replay it with the release that wrote it"
                )
            else:
                getattr(state, field.name)[0] = values
        except (IndexError, TypeError, ValueError) as error:
            raise RecordError(f"state.{field.name}: {error}") from error
    return state


def plain(value: Any) -> Any:
    """Return a NumPy value as JSON: NaN is null, infinity a string."""
    if not isinstance(value, np.ndarray | np.generic):
        return _finite(value)
    numbers = value.tolist()
    if value.dtype.kind != "f" or np.isfinite(value).all():
        return numbers
    return _finite(numbers)


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _read(kind: type[Table], row: Mapping[str, Any], make: Callable[[Json], Table]) -> Table:
    _refuse_unknown(kind, row, set())
    try:
        table = make({name: _array(value, None) for name, value in row.items()})
        for name, value in row.items():
            column = getattr(table, name)
            column[0] = _array(value, column.dtype)
        return table
    except (TypeError, ValueError) as error:
        raise RecordError(f"{kind.__name__}: {error}") from error


def _refuse_unknown(kind: type[Rows], row: Mapping[str, Any], besides: set[str]) -> None:
    unknown = row.keys() - set(kind.__dataclass_fields__) - besides
    if unknown:
        raise RecordError(
            f"{kind.__name__} has no column {', '.join(sorted(unknown))}: replay it with the release that wrote it"
        )


def _array(value: Any, dtype: np.dtype[Any] | None) -> NDArray[Any]:
    """Return JSON as an array: None, "inf" and "-inf" become floats; without `dtype` the numbers determine it."""
    array = np.asarray(value)
    if array.dtype.kind in "OU":
        array = np.asarray(value, np.float64)
    return array if dtype is None else array.astype(dtype)
