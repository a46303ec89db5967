"""What is stored of a forecaster: every bit, or an error that says what it is."""

import struct
import zlib

import numpy as np
import pytest

from rlscaler_core.decision.exceptions import ForecasterStateError
from rlscaler_core.decision.forecaster.memory import CALENDAR_SIZE, RECENT_SIZE, nothing_learned
from rlscaler_core.decision.forecaster.storage import VERSION, from_bytes, from_text, to_bytes, to_text


def some_memory() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    recent, calendar = nothing_learned(1)
    recent[0, ::3] = draw.normal(0, 1e6, len(recent[0, ::3]))
    calendar[0, ::7] = draw.normal(0, 1e-6, len(calendar[0, ::7]))
    recent[0, 4], calendar[0, 2] = np.inf, np.nan
    return recent, calendar


def test_every_bit_comes_back() -> None:
    recent, calendar = some_memory()
    for read in (from_bytes(to_bytes(recent[0], calendar[0])), from_text(to_text(recent[0], calendar[0]))):
        assert read[0].tobytes() == recent.tobytes()
        assert read[1].tobytes() == calendar.tobytes()


def test_what_comes_back_may_be_written_to() -> None:
    recent, calendar = from_bytes(to_bytes(*(part[0] for part in nothing_learned(1))))
    recent[0, 0] = calendar[0, 0] = 1


def _of_version(version: int, recent: int = RECENT_SIZE, calendar: int = CALENDAR_SIZE) -> bytes:
    body = np.zeros(recent + calendar, "<f4").tobytes()
    return struct.pack("<4sHII", b"rlsf", version, recent, calendar) + zlib.compress(body)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (b"", "0 bytes that are none"),
        (b"ConfigMap of somebody else", "that are none"),
        (_of_version(VERSION + 1), f"version {VERSION + 1}"),
        (_of_version(VERSION, recent=3), "with 3 and"),
        (_of_version(VERSION)[:-9], "forecaster state"),
        (_of_version(VERSION)[:20] + b"\xff\xfe\xfd" + _of_version(VERSION)[23:], "forecaster state"),
        (_of_version(VERSION)[:14] + zlib.compress(b"\0" * 100_000_000), "forecaster state"),
    ],
)
def test_a_state_that_cannot_be_read_is_named(stored: bytes, said: str) -> None:
    with pytest.raises(ForecasterStateError, match=said) as caught:
        from_bytes(stored)
    assert "learned again" in str(caught.value)


def test_text_that_is_no_base64_is_named() -> None:
    with pytest.raises(ForecasterStateError, match="no base64"):
        from_text("not base64!")
