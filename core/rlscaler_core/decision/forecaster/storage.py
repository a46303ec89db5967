"""The forecaster's memory of one service as bytes, and back without a lost bit: for a status, a file or a record."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from rlscaler_core.decision.exceptions import ForecasterStateError
from rlscaler_core.decision.forecaster.memory import CALENDAR_SIZE, RECENT_SIZE
from rlscaler_core.decision.types import Float32

VERSION = 2
"""Format version, raised with every change of the meaning of a number in the memory."""

_MAGIC = b"rlsf"
_HEAD = struct.Struct("<4sHII")
_REMEDY = "the service is learned again from now on"
_FORMAT = np.dtype("<f4")


def to_bytes(recent: Float32, calendar: Float32) -> bytes:
    """Return one service's memory, (RECENT_SIZE,) and (CALENDAR_SIZE,), as two to four thousand bytes."""
    body = b"".join(np.ascontiguousarray(row, _FORMAT).tobytes() for row in (recent, calendar))
    return _HEAD.pack(_MAGIC, VERSION, len(recent), len(calendar)) + zlib.compress(body, 6)


def from_bytes(stored: bytes) -> tuple[Float32, Float32]:
    """Return the memory back, (1, RECENT_SIZE) and (1, CALENDAR_SIZE).

    Raises ForecasterStateError where it is of another version, cut short, damaged, or not a forecaster's.
    """
    if len(stored) < _HEAD.size or stored[:4] != _MAGIC:
        raise ForecasterStateError(f"forecaster state: {len(stored)} bytes that are none; {_REMEDY}")
    _, version, recent, calendar = _HEAD.unpack_from(stored)
    if (version, recent, calendar) != (VERSION, RECENT_SIZE, CALENDAR_SIZE):
        raise ForecasterStateError(
            f"forecaster state: version {version} with {recent} and {calendar} numbers, and this release reads "
            f"version {VERSION} with {RECENT_SIZE} and {CALENDAR_SIZE}; {_REMEDY}"
        )
    expected = (recent + calendar) * _FORMAT.itemsize
    try:
        unpacker = zlib.decompressobj()
        body = unpacker.decompress(stored[_HEAD.size :], expected + 1)
    except zlib.error as error:
        raise ForecasterStateError(f"forecaster state: damaged ({error}); {_REMEDY}") from error
    if len(body) != expected or not unpacker.eof:
        raise ForecasterStateError(f"forecaster state: {len(body)} bytes of {expected}; {_REMEDY}")
    row = np.frombuffer(body, _FORMAT).astype(np.float32)[None]
    return row[:, :recent].copy(), row[:, recent:].copy()


def to_text(recent: Float32, calendar: Float32) -> str:
    """Return `to_bytes` as base64, for JSON."""
    return base64.b64encode(to_bytes(recent, calendar)).decode()


def from_text(text: str) -> tuple[Float32, Float32]:
    """Read the memory from the text of `to_text`. Raises ForecasterStateError."""
    try:
        return from_bytes(base64.b64decode(text, validate=True))
    except ValueError as error:
        raise ForecasterStateError(f"forecaster state: no base64 ({error}); {_REMEDY}") from error
