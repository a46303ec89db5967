"""Build a table of arrays from scalars, one row or full columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.decision.exceptions import ColumnError


class Column(NamedTuple):
    """Shape after the leading N, dtype and default of one field; `default=None` = must be given."""

    trailing: tuple[int, ...]
    dtype: type
    default: Any


def fill(table: str, n: int, columns: Mapping[str, Column], given: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Every column as an own, writable array of shape (n, *trailing).

    `given` is broadcast against that shape: a scalar, one row's shape, or the full column; one number a row
    for a two-column field is (n, 1). Raises ColumnError for an unknown, missing or misshapen column.
    """
    unknown = sorted(set(given) - set(columns))
    if unknown:
        raise ColumnError(f"{table}: no column {', '.join(unknown)}; there are {', '.join(columns)}")
    filled: dict[str, NDArray[Any]] = {}
    for name, (trailing, dtype, default) in columns.items():
        value = given.get(name, default)
        if value is None:
            raise ColumnError(f"{table}.{name}: has no default; pass an array of shape {(n, *trailing)}")
        try:
            column: NDArray[Any] = np.empty((n, *trailing), dtype)
            column[...] = value
            filled[name] = column
        except ValueError as error:
            raise ColumnError(f"{table}.{name}: does not fit the shape {(n, *trailing)}: {error}") from error
    return filled
