"""Amounts are rounded up and written as Kubernetes writes them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlscaler_core.api.resources import amount
from rlscaler_core.vertical.quantities import MIB, readable, rounded, text


@pytest.mark.parametrize(
    ("resource", "value", "most", "written"),
    [
        ("cpu", 0.25, math.inf, "250m"),
        ("cpu", 0.3001, math.inf, "301m"),
        ("cpu", 0.1 + 0.2, math.inf, "300m"),
        ("memory", 1.5 * 1024 * MIB, math.inf, "1536Mi"),
        ("memory", 1.0, math.inf, "1Mi"),
        ("memory", 100e6, 100e6, "100000000"),
        ("memory", 1.5, 3.0, "2"),
    ],
)
def test_a_size_is_rounded_up_to_what_is_read_easily_within_its_range(resource, value, most, written):
    assert text(resource, readable(resource, value, most)) == written


def test_what_is_not_known_stays_so():
    assert math.isnan(readable("memory", math.nan, 1.0))


@given(st.sampled_from(["cpu", "memory"]), st.floats(1e-3, 1e12))
def test_what_is_written_is_what_was_rounded_and_never_less_than_asked_for(resource, value):
    up = rounded(resource, value)
    assert amount(text(resource, up)) == pytest.approx(up, rel=1e-12)
    # A float near 1e12 cores is a multiple of 1e-4, so that an absolute tolerance alone does not fit.
    assert up >= value or up == pytest.approx(value, rel=1e-12, abs=1e-9)
