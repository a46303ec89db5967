"""Whatever was decided, in whatever batch, comes out of its record again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlscaler_core.arbiter.rules import RULES
from rlscaler_core.decision.batch import Entry, decide_all, starting_state
from rlscaler_core.decision.types import Flag
from rlscaler_core.models import load_bundled
from rlscaler_operator.cli.replay.actors import AvailableActors
from rlscaler_operator.cli.replay.compare import replay
from rlscaler_operator.records.log import Line
from rlscaler_operator.records.record import Subject, line
from rlscaler_operator.records.sharing import ArbiterInput, BudgetObject, sharing_line
from tests.property.test_arbiter_properties import random_case
from tests.property.test_shield_properties import random_params, random_samples

POLICIES, STEPS = 150, 12
SUBJECT = Subject("ns", "name", "uid", 1, "Auto")


@pytest.mark.slow
@pytest.mark.parametrize("actor", ["ppo", "rule", None])
def test_random_policies_on_random_measurements(actor):
    rng = np.random.default_rng(11)
    mind = None if actor is None else load_bundled(actor)
    params = random_params(rng, POLICIES)
    if actor == "ppo":
        params.requests_per_second[:, 0] = 5 * params.requests_per_second[:, 1]
    replicas = np.clip(rng.integers(0, 30, (POLICIES, 2)), params.min_replicas, params.max_replicas)
    stack = 4 if mind is None else mind.manifest.stack_size
    states = [starting_state(stack, (int(gpu), int(cpu)), 0.0) for gpu, cpu in replicas]
    lines, flags = [], 0
    for step in range(STEPS):
        samples = random_samples(rng, params, 30.0 * step, replicas)
        kinds = rng.choice(["action", "floor"], POLICIES)
        entries = [
            Entry(params.take(slice(i, i + 1)), states[i], samples.take(slice(i, i + 1)), str(kinds[i]), mind)
            for i in range(POLICIES)
        ]
        for i, outcome in enumerate(decide_all(entries)):
            record = line(f"{step}-{i}", 1e9 + step, SUBJECT, outcome, [], None, None)
            lines.append(Line(Path("log"), len(lines), json.loads(json.dumps(record, allow_nan=False))))
            states[i], replicas[i] = outcome.state, outcome.decision.desired[0]
            flags |= int(outcome.decision.flags[0])
    again = list(replay(lines, AvailableActors()))
    assert [one.line.number for one in again if one.differences or one.problem] == []
    assert len(again) == POLICIES * STEPS
    every = Flag.FALLBACK | Flag.BEHAVIOR | Flag.FLOOR | Flag.PAUSED | Flag.PENDING | Flag.BUDGET_LIMITED
    assert flags & every == every


@pytest.mark.parametrize("rule", tuple(RULES))
def test_however_a_budget_was_shared_it_comes_out_again_to_the_last_bit(rule):
    rng, lines = np.random.default_rng(5), []
    for number in range(300):
        m = int(rng.integers(1, 12))
        budgets, members, loans = random_case(rng, 1, m, 1 + number % 3)
        resources = ("gpu", "cpu", "memory")[: 1 + number % 3]
        policies = tuple(("ns", f"p{i}") for i in range(m))
        given = ArbiterInput(rule, "gpu", resources, policies, (True,) * m, budgets, members, loans)
        record = sharing_line(f"id-{number}", 1e9, BudgetObject("few", "u", 1), given, *given.arbitrate())
        lines.append(Line(Path("log"), number, sharing=json.loads(json.dumps(record, allow_nan=False))))
    again = list(replay(lines, AvailableActors()))
    assert [(one.differences, one.problem) for one in again if one.differences or one.problem] == []
    assert len(again) == 300
    lines[0].sharing["grants"]["granted"][0] += 1
    assert next(replay(lines, AvailableActors())).differences
