"""What is remembered of pods' sizes survives a restart exactly, and what cannot be read is not believed."""

from __future__ import annotations

import base64
from dataclasses import fields

import numpy as np
import pytest

from rlscaler_core.vertical.recommend import Ranges, Usage, nothing_known, recommend
from rlscaler_core.vertical.storage import from_text, to_text


@pytest.fixture
def memory():
    rng = np.random.default_rng(1)
    ranges = Ranges(np.full((2, 2), 0.1), np.full((2, 2), 4.0), np.full((2, 2), 0.1))
    known = nothing_known(2)
    for second in range(60):
        known = recommend(ranges, known, Usage(np.full(2, 30.0 * second), rng.random((2, 2)) * 3))
    return known


def test_it_comes_back_exactly(memory):
    back = from_text(to_text(memory), 2)
    for one in fields(memory):
        kept, found = getattr(memory, one.name), getattr(back, one.name)
        assert found.dtype == kept.dtype
        np.testing.assert_array_equal(found, kept)
    assert len(to_text(memory)) < 8192


def test_nothing_known_comes_back_too():
    assert np.isnan(from_text(to_text(nothing_known(1)), 1).size).all()


def test_what_cannot_be_read_is_not_believed(memory):
    text = to_text(memory)
    packed = bytearray(base64.b64decode(text))
    version = bytes(packed[:4]) + b"\x09" + bytes(packed[5:])
    damaged = bytes(packed[:-8]) + b"12345678"
    for other in ("", "no base64!", text[:40], base64.b64encode(version).decode(), base64.b64encode(damaged).decode()):
        assert from_text(other, 2) is None
    assert from_text(text, 1) is None, "of other pools"
