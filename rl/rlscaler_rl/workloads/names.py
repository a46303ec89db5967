"""What the workloads are called, and the three parts of each."""

from __future__ import annotations

from enum import StrEnum


class Part(StrEnum):
    """train: policies learn from it. tune: everybody's parameters are chosen on it. test: looked at once."""

    TRAIN = "train"
    TUNE = "tune"
    TEST = "test"


PATTERNS = ("ramp", "spike", "periodic", "random")
"""As the demo plays them: between 10 and 100 requests/s."""

VARIED = tuple(f"{name}_varied" for name in PATTERNS)
"""The same with a scale, a phase and a period drawn for every episode."""

TRACES = ("azure_code", "azure_conv", "servegen_small", "servegen_large", "worldcup")
"""Recorded; block by block of the part that is asked for."""

HELD_OUT = "azure_code"
"""No policy is trained on it; in two folds, each the tune part of the other."""

MIXED = "varied"
"""The varied patterns in turn, as one workload."""

EXTRAS = ("flat", "one_pool", "envelope")
"""Loads that do not change, a fifth of them none; services with only one of the two pools; services drawn from all
that training draws from."""

NAMES = (*PATTERNS, *TRACES, *VARIED, MIXED, *EXTRAS)
