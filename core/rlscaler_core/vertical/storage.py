"""The memory of a policy's pod sizes as text for a status or a record, and back exactly."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import fields

import numpy as np

from rlscaler_core.vertical.recommend import Memory, nothing_known

_HEAD = struct.Struct("<4sHH")
_MAGIC, VERSION = b"rlsv", 1
"""Format version, raised with every change of the meaning of a number in the memory."""


def to_text(memory: Memory) -> str:
    """Return the memory of a policy's pools as base64, some hundred characters."""
    columns = (np.ascontiguousarray(getattr(memory, column.name), np.float64).tobytes() for column in fields(memory))
    packed = _HEAD.pack(_MAGIC, VERSION, len(memory)) + zlib.compress(b"".join(columns), 6)
    return base64.b64encode(packed).decode()


def from_text(text: str, n: int) -> Memory | None:
    """Read the memory of `n` pools; None where it is of another version, damaged, or of other pools."""
    memory = nothing_known(n)
    shapes = {one.name: getattr(memory, one.name).shape for one in fields(memory)}
    expected = 8 * sum(int(np.prod(shape)) for shape in shapes.values())
    try:
        packed = base64.b64decode(text, validate=True)
        if len(packed) < _HEAD.size or _HEAD.unpack_from(packed) != (_MAGIC, VERSION, n):
            return None
        unpacker = zlib.decompressobj()
        body = unpacker.decompress(packed[_HEAD.size :], expected + 1)
    except (ValueError, zlib.error):
        return None
    if len(body) != expected or not unpacker.eof:
        return None
    numbers, begin = np.frombuffer(body, "<f8"), 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        column = numbers[begin : begin + size].reshape(shape)
        setattr(memory, name, column.astype(getattr(memory, name).dtype))
        begin += size
    return memory
