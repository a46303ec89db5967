"""`rlscaler explain`: the variants that it shows are true."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.decision.batch import decide_all
from rlscaler_core.decision.decide import decide
from rlscaler_core.decision.guards import STAGES, without
from rlscaler_core.decision.headroom import MODEL, above, model_number
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.observation import sense
from rlscaler_core.decision.throughput import AFTER, AGAIN, BEFORE, FEWER, MORE, PHASE, TIME, UNTIL, Phase
from rlscaler_core.decision.types import OBSERVATIONS
from rlscaler_operator.cli.explain.analysis import steps
from rlscaler_operator.cli.explain.explain import explain
from rlscaler_operator.cli.explain.flips import find_flips
from rlscaler_rl.baselines.actors import FrozenActor
from tests.harness.records import recorded


@pytest.fixture
def log(log):
    def write(*outcomes, **changes):
        return log(*(recorded(outcome, f"0190-{n}", n, **changes) for n, outcome in enumerate(outcomes)))

    return write


def run(*arguments, columns=160):
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(explain, [str(argument) for argument in arguments])


def asked(actor, entry, **changes):
    """The actor's action with other samples."""
    samples = entry.samples.copy()
    for name, value in changes.items():
        getattr(samples, name)[:] = value
    outcome = decide_all([replace(entry, samples=samples)])[0]
    return tuple(outcome.decision.action[0].tolist()), outcome.decision.trail[0, 0].tolist()


def test_a_flip_is_where_the_answer_changes_and_not_before(ppo, entry):
    """The answer: the action and what it is added to, since the network stands on the rule."""
    one = entry(actor=ppo, rate=60.0)
    now = asked(ppo, one)
    flips = [flip for flip in find_flips(one) if flip.signal in ("arrival_rate", "gpu_utilization", "p95_latency")]
    assert flips
    for flip in flips:
        column = "p95_ms" if flip.signal == "p95_latency" else flip.signal
        at, proposal = asked(ppo, one, **{column: flip.value})
        assert at == flip.action
        assert tuple(proposal) == flip.proposal
        assert (at, proposal) != now
        nearer = flip.value + (flip.measured - flip.value) * 0.02
        assert asked(ppo, one, **{column: nearer}) == now


def test_other_replicas_are_whole_and_within_the_limits(ppo, entry):
    for flip in find_flips(entry(actor=ppo, rate=60.0)):
        if flip.signal.endswith("_replicas"):
            assert flip.value == int(flip.value)
            assert 1 <= flip.value <= 10


def test_replicas_that_stand_at_their_limit_are_only_varied_inwards(ppo, entry):
    flips = find_flips(entry(actor=ppo, rate=60.0, replicas=(1, 10)))
    assert all(1 <= flip.value <= 10 for flip in flips if flip.signal.endswith("_replicas"))


def test_the_rule_changes_its_mind_with_the_load_and_with_replicas_that_are_there_already(rule, entry):
    flips = {flip.signal for flip in find_flips(entry(actor=rule, rate=60.0))}
    assert "arrival_rate" in flips
    assert flips <= {"arrival_rate", "gpu_replicas", "cpu_replicas"}


def test_nearest_first_and_no_signal_that_is_unknown(ppo, entry):
    one = entry(actor=ppo, rate=60.0)
    one.samples.gpu_utilization[:] = np.nan
    flips = find_flips(one)
    assert [flip.distance for flip in flips] == sorted(flip.distance for flip in flips)
    assert "gpu_utilization" not in {flip.signal for flip in flips}


@pytest.mark.parametrize("kind", ["floor", "action"])
def test_without_an_actor_nothing_flips(entry, kind):
    assert find_flips(entry(kind, actor=None)) == []


@pytest.mark.parametrize(
    ("guard", "kind", "params", "samples"),
    [
        ("floor", "floor", {}, {"arrival_rate": 150.0}),
        ("limits", "action", {"min_replicas": (3, 3)}, {"arrival_rate": 1.0}),
        ("pause", "action", {}, {"paused": True, "paused_replicas": (7, 7)}),
        ("behavior", "action", {"has_behavior": True, "select_policy": (2, 2)}, {"arrival_rate": 1.0}),
        ("budget", "action", {"budget_per_hour": 6.5}, {"arrival_rate": 190.0}),
        ("grant", "action", {}, {"arrival_rate": 190.0, "granted_replicas": (2, -1)}),
        ("partitions", "action", {"stream": True}, {"arrival_rate": 190.0, "settling": True}),
        ("throughput", "action", {"stream": True}, {"arrival_rate": 190.0, "processed": 40.0}),
    ],
)
def test_without_a_guard_the_others_still_act(rule, entry, guard, kind, params, samples):
    one = entry(kind, actor=rule, rate=20.0, **params)
    for name, value in samples.items():
        getattr(one.samples, name)[:] = value
    if guard == "throughput":
        one.state.trial[0, [PHASE, FEWER, MORE, UNTIL]] = Phase.HELD, 2.0, 4.0, np.inf
    decision = decide_all([one])[0].decision
    found = {step.guard: step for step in steps(one, decision)}
    assert tuple(found) == STAGES
    assert found[guard].changed
    state = sense(one.params, one.state, one.samples)
    expected = decide(one.params, state, one.samples, one.actor, kind=kind, guards=without(guard)).decision.desired[0]
    assert list(found[guard].without.values()) == expected.tolist()
    assert all(step.without is None for step in found.values() if not step.changed)
    assert expected.tolist() != decision.desired[0].tolist()


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        (Phase.RAISED, "That is being measured."),
        (Phase.UNDONE, "So the scale-up is undone, to 4 consumers."),
        (Phase.HELD, "So the scale-up was undone: no more than 4 consumers until 00:10:00 UTC."),
        (Phase.EXCUSED, "It was undone, but 4 consumers processed 155 then"),
    ],
)
def test_the_page_says_what_became_of_a_scale_up(rule, entry, log, phase, said):
    one = entry(actor=rule, stream=True)
    one.samples.processed[:] = 150.0
    one.state.trial[0, [PHASE, FEWER, MORE, BEFORE, AFTER, AGAIN, TIME, UNTIL]] = phase, 4, 6, 250, 150, 155, 99, 600
    done = run("last", log(decide_all([one])[0]))
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "4 consumers processed 250 messages/s, and 6 consumers 150. " + said in text


def test_without_the_ceiling_more_than_the_stretch_has_needed_is_kept(entry):
    one = entry(actor=FrozenActor(Manifest(name="frozen", stack_size=1)), replicas=(8, 4), ceiling_seconds=60.0)
    one.state.peak_time[0], one.state.peak_value[0] = np.arange(-20.0, 100.0, 10.0), 20.0
    decision = decide_all([one])[0].decision
    found = {step.guard: step for step in steps(one, decision)}
    assert decision.desired.tolist() == [[2, 2]]
    assert found["ceiling"].without == {"gpu": 8, "cpu": 4}


def test_the_page_says_what_happened(ppo, entry, log):
    one = entry(actor=ppo, rate=190.0)
    outcome = decide_all([one])[0]
    outcome.seconds = {"sense": 0.012}
    done = run("last", log(outcome))
    assert done.exit_code == 0, done.output
    for text in ("ns/chat", "cpu_utilization", "placement", "Guard", "Would have changed it", "the same comes out"):
        assert text in done.output
    assert "took       sense 12.0 ms" in done.output
    assert re.search(r"proposal +\d → \d+", done.output)


def test_the_page_says_what_a_budget_grants_and_why_it_is_not_more(rule, entry, log):
    one = entry(actor=rule, rate=190.0)
    one.samples.granted_replicas[:] = 3, -1
    outcome = decide_all([one])[0]
    outcome.granted = "RLScalingBudget gpus: asked 6, granted 3: team/svc-b's guarantee"
    done = run("last", log(outcome))
    assert "grant      RLScalingBudget gpus: asked 6, granted 3: team/svc-b's guarantee" in done.output
    assert "GrantLimited" in done.output
    assert re.search(r"^ *grant .*\d → 3", done.output, re.MULTILINE)


def test_the_page_says_plan_and_headroom(ppo, entry, log):
    one = entry(actor=ppo, rate=60.0)
    one.state.headroom[:, [0, 2, MODEL]] = np.log(1.18), 1_767_604_440.0, model_number(ppo.manifest.digest)
    outcome = decide_all([one])[0]
    page = " ".join(run("last", log(outcome)).output.split())
    (percent, _), planned = above(outcome.state)["gpu"], outcome.decision.trail[0, 0]
    assert f"headroom gpu {percent:.0f} % above the plan since 09:14" in page
    assert f"plan gpu {planned[0]}, cpu {planned[1]}, headroom included" in page


def test_names_stay_whole_on_a_narrow_terminal(ppo, entry, log):
    done = run("last", log(decide_all([entry(actor=ppo, rate=190.0)])[0]), columns=80)
    for name in (*STAGES, *OBSERVATIONS):
        assert re.search(rf"^ *{name} ", done.output, re.MULTILINE), name
    assert max(map(len, done.output.splitlines())) <= 80


def test_the_same_as_json(ppo, entry, log):
    done = run("last", log(decide_all([entry(actor=ppo)])[0]), "-o", "json")
    shown = json.loads(done.stdout)
    assert [step["guard"] for step in shown["guards"]] == list(STAGES)
    assert shown["flips"]
    assert shown["decision_id"] == "0190-0"
    assert "state" not in shown


def test_decisions_are_found_by_their_beginning(rule, entry, log):
    path = log(*decide_all([entry(), entry("floor"), entry(actor=None)]))
    assert "0190-1" in run("0190-1", path).output
    assert "0190-2" in run("last", path, "--policy", "ns/chat").output
    for wanted, said in (("0190", "begins 3 decisions"), ("0191", "status.lastDecision.id"), ("019", "no decision")):
        done = run(wanted, path)
        assert done.exit_code == 1
        assert said in done.output
    assert "of ns/other" in run("last", path, "--policy", "ns/other").output


def test_all_changes_of_replicas_are_listed_with_their_load_and_stages(rule, entry, log):
    entries = [entry(actor=rule, rate=rate, replicas=(1, 1)) for rate in (60.0, 10.0)]
    outcomes = decide_all(entries)
    path = log(*outcomes)
    found = run("changes", path)
    assert found.exit_code == 0, found.output
    page = json.loads(run("changes", path, "-o", "json").output)
    ((policy, listed),) = page.items()
    assert listed["decisions"] == 2
    assert listed["changes"][0]["load"] == 60.0
    change, desired = listed["changes"][0], outcomes[0].decision.desired[0].tolist()
    assert [change["after"][pool] for pool in ("gpu", "cpu")] == desired
    assert change["before"] == {"gpu": 1, "cpu": 1}
    assert set(change["stages"]) <= {"plan", *STAGES}
    assert change["decision_id"] in found.output
    assert policy in found.output
    assert "no decision of nobody/none" in run("changes", path, "--policy", "nobody/none").output


def test_what_cannot_be_decided_again_is_shown_as_recorded(ppo, entry, log):
    outcome = decide_all([entry(actor=ppo)])[0]
    done = run("last", log(outcome, actor={"name": "tailored", "digest": "ab" * 32}))
    assert done.exit_code == 0
    assert "cannot be decided again: actor 'tailored'" in done.output
    assert "cpu_utilization" in done.output
    assert "Would have changed it" not in done.output
    done = run("last", log(outcome, desired={"gpu": 9, "cpu": 9}))
    assert "desired.gpu: 9 was recorded" in done.output


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"applied": None}, "policy's deadline"),
        ({"mode": "Shadow"}, "mode Shadow"),
        ({"conflict": "ForeignWriter"}, "Conflicted (ForeignWriter)"),
        ({"promotion": "Collecting"}, "promotion Collecting"),
        ({"applied": True}, "nothing to write"),
        ({"writes": {"gpu": "LeaseLost"}}, "gpu LeaseLost"),
        ({}, "the lease was lost"),
    ],
)
def test_what_became_of_the_writes_is_said(rule, entry, log, changes, said):
    assert said in run("last", log(decide_all([entry()])[0], **changes)).output
