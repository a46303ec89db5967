"""Names of the workloads, their three parts, and the error for a wrong one."""

from __future__ import annotations

from enum import StrEnum

import click


class WorkloadError(click.ClickException, ValueError):
    """Error whose message names the workload, the part or the file, and the remedy. Exit code 2."""

    exit_code = 2


class Part(StrEnum):
    """The parts of a workload: policies learn from train, all parameters are chosen on tune, test is looked at once."""

    TRAIN = "train"
    TUNE = "tune"
    TEST = "test"


PATTERNS = ("ramp", "spike", "periodic", "random")
"""Drawn loads as the demo plays them, between 10 and 100 requests/s."""

VARIED = tuple(f"{name}_varied" for name in PATTERNS)
"""The patterns with a scale, a phase and a period drawn for every episode."""

TRACES = ("azure_code", "azure_conv", "servegen_small", "servegen_large", "worldcup")
"""Recorded loads, played block by block of the part that is asked for."""

HELD_OUT = "azure_code"
"""The recorded load that no policy is trained on; it has two folds, each of them the tune part of the other."""

MIXED = "varied"
"""The varied patterns in turn, as one workload."""

EXTRAS = ("flat", "one_pool", "envelope")
"""Loads that do not change, a fifth of them none; services with only one of the two pools; services drawn from all
that training draws from."""

ERRORS, DRIFT = (-0.4, -0.2, -0.1, 0.0, 0.2), 0.2
"""True capacity of a replica over the declared one, minus 1, in the uncertain world, and the relative amplitude by
which it swings within a day in half of the rows."""

SCRAPE_SECONDS = 15
"""Seconds between two scrapes there."""

NAMES = (*PATTERNS, *TRACES, *VARIED, MIXED, *EXTRAS)
