"""Where the networks are trained: the choice, and what is tried for it."""

from __future__ import annotations

import pytest
import torch

from rlscaler_rl.training import device
from rlscaler_rl.training.config import ConfigError
from rlscaler_rl.training.train import make_env, make_model


def never(name: str) -> float:
    raise AssertionError(f"{name} need not be tried")


def test_the_faster_device_is_taken_and_the_figures_are_kept():
    seconds = {"cpu": 1.25, "cuda": 0.5}
    chosen = device.choose("auto", ["cpu", "cuda"], seconds.__getitem__)
    assert chosen.name == "cuda"
    assert chosen.record()["seconds_per_update"] == seconds
    assert str(chosen) == "device: cuda (an update takes cpu 1.25 s, cuda 0.50 s)"
    assert device.fastest({"cpu": 0.5, "cuda": 0.5}).name == "cpu"


def test_nothing_is_tried_without_a_choice():
    assert str(device.choose("auto", ["cpu"], never)) == "device: cpu (no CUDA device)"
    assert device.choose("cuda", ["cpu", "cuda"], never).name == "cuda"


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match=r"agent\.device: cuda is not available here; use auto or cpu"):
        device.choose("cuda", ["cpu"], never)


@pytest.mark.slow
@pytest.mark.parametrize("name", device.available())
def test_an_update_is_timed_on_every_device_that_is_here(small, name):
    assert device.available() == (["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
    assert device.time_update(lambda where: make_model(small, make_env(small), None, device=where), name) > 0
