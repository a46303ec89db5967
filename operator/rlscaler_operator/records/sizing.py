"""Recommended pod sizes as a part of an audit record, and their replay."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from rlscaler_core.decision.types import Float
from rlscaler_core.vertical.recommend import Ranges, Usage
from rlscaler_core.vertical.storage import from_text, to_text
from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.records.rows import Json, plain
from rlscaler_operator.state.pod_sizes import Sizing, look


def record_of(sizing: Sizing) -> Json:
    """Return the recommended sizes with the inputs that a replay needs."""
    return {
        "pools": list(sizing.pools),
        "ranges": {field.name: plain(getattr(sizing.ranges, field.name)) for field in fields(sizing.ranges)},
        "time": plain(sizing.usage.time),
        "used": plain(sizing.usage.used),
        "before": to_text(sizing.before),
        "size": plain(sizing.after.size),
    }


def sized_again(record: Json) -> Json:
    """Recommend again from a result of `record_of`; return it with the new `size`. Raises RecordError."""
    try:
        n = len(record["pools"])
        ranges = Ranges(**{field.name: _table(record["ranges"][field.name]) for field in fields(Ranges)})
        usage = Usage(np.array(record["time"], np.float64), _table(record["used"]))
        before = from_text(record["before"], n)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"sizing: malformed ({error!r})") from error
    if before is None:
        raise RecordError("sizing: what was seen before is of another version")
    return {**record, "size": plain(look(before, ranges, tuple(record["pools"]), usage).after.size)}


def _table(rows: Any) -> Float:
    return np.array([[math.nan if value is None else value for value in row] for row in rows], np.float64)
