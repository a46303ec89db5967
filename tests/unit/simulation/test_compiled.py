"""What compiled functions take from their callers."""

from __future__ import annotations

import inspect

import pytest
from numba.core.dispatcher import Dispatcher

from rlscaler_rl.simulation import pods

SHARED = [name for name, value in inspect.getmembers(pods) if isinstance(value, Dispatcher)]


def test_there_are_shared_functions() -> None:
    assert {"uniform", "shares", "start_pods"} <= set(SHARED)


@pytest.mark.parametrize("name", SHARED)
def test_functions_of_both_levels_inherit_no_flag_from_whichever_level_is_compiled_first(name: str) -> None:
    assert {"fastmath", "error_model"} <= getattr(pods, name).targetoptions.keys()
