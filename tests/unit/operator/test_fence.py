"""A policy whose part of the loop's work fails hurts no other: each callee of the loop is made to fail."""

import functools
import time

import pytest
from kubernetes.aio.client import Configuration

from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.loop import grants as loop_grants
from rlscaler_operator.loop import prepare, sense
from rlscaler_operator.loop.wiring import build_engine
from rlscaler_operator.run.context import Context
from rlscaler_operator.sensing.access import Access
from rlscaler_operator.sensing.answer import refusal
from rlscaler_operator.sensing.results import TimedAnswers
from rlscaler_operator.settings import Settings
from rlscaler_operator.state import observed
from rlscaler_operator.state.schedule import Schedule
from tests.harness.budgets import budget_body
from tests.harness.ticks import happens

WORD = "unforeseen"


@pytest.fixture
async def engine(api_server):
    settings = Settings(gather_seconds=0, prometheus_url="http://127.0.0.1:9", lease_seconds=60, budgets=True)
    kube = Kube(Configuration(host=api_server.url))
    engine = build_engine(settings, kube)
    engine.acting = {0: 1}
    engine.shards.leases[0]._deadline = float("inf")

    async def ask(_, queries):
        return {query.name: {} for query in queries}

    async def ask_own(_, namespace, queries, parameters, apart):
        return TimedAnswers({query.name: {} for query in queries})

    engine.sensing.sources.ask, engine.sensing.sources.ask_own = ask, ask_own
    yield engine
    await engine.sensing.close()
    await kube.close()


def body(policy_body, name):
    made = policy_body(name)
    made["spec"]["metrics"] = {"queries": {"arrivalRate": f'sum(hits{{of="{name}"}})'}}
    return made


def concerns(value, name="guilty", depth=6):
    """Whether an argument of a callee belongs to the policy of this name."""
    if isinstance(value, str | WatchCache):
        return isinstance(value, str) and name in value
    if isinstance(value, dict):
        # Of the answers to queries, those for all policies are in one mapping.
        return "arrivalRate" in value and name in value["arrivalRate"]
    if isinstance(value, list | tuple | set):
        return depth > 0 and any(concerns(item, name, depth - 1) for item in value)
    for attribute in ("key", "policy", "subject", "deployments", "queries"):
        if depth > 0 and concerns(getattr(value, attribute, ()), name, depth - 1):
            return True
    return False


def refusing(callee):
    """The same callee, which fails where any argument belongs to the guilty policy."""

    @functools.wraps(callee)
    def fails(*arguments, **named):
        if any(concerns(argument) for argument in (*arguments, *named.values())):
            raise RuntimeError(WORD)
        return callee(*arguments, **named)

    return fails


CALLEES = {
    "due": lambda engine: (engine, "_due"),
    "access": lambda engine: (engine.sensing, "access"),
    "model": lambda engine: (engine.actors, "pending"),
    "actor": lambda engine: (engine.actors, "get"),
    "idle report": lambda engine: (engine.reporter, "stale"),
    "shared queries": lambda engine: (sense, "batch"),
    "own access": lambda engine: (sense, "own_access"),
    "own queries": lambda engine: (sense, "own_queries"),
    "own answers": lambda engine: (engine.sensing, "set_apart"),
    "preparing": lambda engine: (engine.preparer, "prepare"),
    "measuring": lambda engine: (prepare, "measure"),
    "learning": lambda engine: (prepare, "learned"),
    "budgets": lambda engine: (engine.ticker.sharing, "share_batch"),
    "quiet": lambda engine: (engine.reconciler, "is_quiet"),
    "comparing": lambda engine: (engine.shadows, "due_for_calibration"),
    "revisions": lambda engine: (engine.registry, "revisions"),
    "diagnosis": lambda engine: (engine.reconciler._diagnostician, "diagnose"),
    "taking over": lambda engine: (engine.registry, "_adopt"),
}

WITHOUT_A_CONDITION = {"comparing", "idle report"}
"""Work that a decision does not need, or that comes with no decision."""


def ready(policy):
    return next((c for c in policy.report.conditions if c.type == "Ready"), None)


async def turn(engine, *policies):
    """One turn of the loop in which all are due, until its tasks have ended."""
    for policy in policies:
        policy.timing.schedule = Schedule.starting(30, 5, time.monotonic() - 100)
    engine._launch_due()
    await happens(lambda: not engine.background.tasks, 120)


@pytest.mark.parametrize("callee", CALLEES)
async def test_what_fails_for_one_policy_is_its_condition_and_the_other_is_decided_as_before(
    engine, policy_body, monkeypatch, callee
):
    names = ("innocent", "guilty")
    policies = [engine.registry.put(body(policy_body, name)) for name in names]
    if callee == "idle report":
        policies[1].spec.__dict__["mode"] = "Off"
    for name in names:
        metadata = {"metadata": {"namespace": "ns", "name": f"{name}-gpu"}}
        engine.cache.put_deployment(metadata | {"spec": {"replicas": 2}, "status": {"readyReplicas": 2}})
    owner, name = CALLEES[callee](engine)
    monkeypatch.setattr(owner, name, refusing(getattr(owner, name)))
    if callee == "taking over":
        monkeypatch.setattr(engine.shards, "holds", lambda: {0: 2})
        engine._take_over()
        policies = [engine.registry.get(policy.key) for policy in policies]
        innocent, guilty = policies
        await happens(lambda: not engine.background.tasks)
    else:
        innocent, guilty = policies
        await turn(engine, innocent, guilty)
    if callee not in WITHOUT_A_CONDITION:
        assert ready(guilty).reason == ("ShareFailed" if callee == "budgets" else "InternalError")
        assert WORD in ready(guilty).message
        assert guilty.timing.breaker.failures > 0
    if callee == "taking over":
        await turn(engine, innocent)
    assert innocent.decision.desired
    assert ready(innocent).reason not in ("InternalError", "ShareFailed")
    assert innocent.timing.breaker.failures == 0


async def test_policies_of_a_budget_that_fails_are_held_with_its_reason_and_others_go_on(
    engine, policy_body, monkeypatch
):
    members, policies = [{"name": "all", "matchLabels": {"in": "few"}}], []
    for name, labels in (("innocent", {}), ("guilty", {"in": "few"})):
        policies.append(engine.registry.put(body(policy_body, name)))
        engine.budgets.take_in_policy(policies[-1].key, labels, None)
        metadata = {"metadata": {"namespace": "ns", "name": f"{name}-gpu"}}
        engine.cache.put_deployment(metadata | {"spec": {"replicas": 2}, "status": {"readyReplicas": 2}})
    engine.budgets.take_in(budget_body(members=members))

    def fails(*_):
        raise RuntimeError(WORD)

    with monkeypatch.context() as broken:
        broken.setattr(loop_grants, "arbitrate", fails)
        await turn(engine, *policies)
    innocent, guilty = policies
    assert (ready(guilty).status, ready(guilty).reason) == ("False", "ShareFailed")
    assert "RLScalingBudget few" in ready(guilty).message
    assert not guilty.decision.desired, "nothing is decided that no grant bounds"
    assert innocent.decision.desired
    guilty.timing.breaker.until = 0.0
    await turn(engine, *policies)
    assert ready(guilty).reason != "ShareFailed"


async def test_a_policy_that_fails_at_every_turn_is_left_alone_for_a_while(engine, policy_body, monkeypatch):
    policy = engine.registry.put(body(policy_body, "guilty"))
    monkeypatch.setattr(engine.sensing, "access", refusing(engine.sensing.access))
    began = time.monotonic()
    for _ in range(5):
        await turn(engine, policy)
    assert policy.timing.breaker.failures == 1, "four of the five turns fell into its pause"
    assert policy.timing.breaker.until > began + 0.9
    counted = engine.metrics.render(["rlscaler_policy_errors_total"]).decode()
    assert 'policy="guilty"} 1.0' in counted, counted


async def test_what_cannot_even_be_reported_ends_nothing(engine, policy_body, monkeypatch):
    policy = engine.registry.put(body(policy_body, "guilty"))
    for owner, name in ((engine.sensing, "access"), (engine.reporter, "report"), (engine.reporter, "unfinished")):
        monkeypatch.setattr(owner, name, refusing(getattr(owner, name)))
    await turn(engine, policy)
    assert policy.timing.breaker.until > time.monotonic()


async def test_a_failure_of_every_turn_is_counted_each_time_and_logged_once(engine, caplog):
    for _ in range(5):
        engine.fence.without_policy("share budgets", lambda: 1 / 0)
    assert caplog.text.count("Traceback") == 1
    assert b"rlscaler_loop_errors_total 5.0" in engine.metrics.render(["rlscaler_loop_errors_total"])
    engine.fence.without_policy("share budgets", lambda: None)
    engine.fence.without_policy("share budgets", lambda: 1 / 0)
    assert caplog.text.count("Traceback") == 2


def test_an_object_that_no_rule_refuses_and_no_code_reads_is_an_invalid_spec(policy_body, monkeypatch):
    def fails(*_):
        raise RuntimeError(WORD)

    monkeypatch.setattr(observed, "_facts", fails)
    seen = observed.ObservedObject()
    seen.read(policy_body("guilty"))
    assert seen.parsed is None
    assert WORD in seen.invalid


FOREIGN = {
    "Deployment": {"spec": {"replicas": "many", "template": 3}, "status": []},
    "Pod": {"spec": [], "status": "Running"},
    "HorizontalPodAutoscaler": {"spec": 7},
    "ScaledObject": {"spec": 7},
    "VerticalPodAutoscaler": {"spec": 7},
    "HTTPRoute": {"spec": {"rules": "all"}},
    "RLScalingPolicy": {"spec": {}, "status": 7},
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_an_object_that_cannot_be_taken_in_ends_no_start(api_server, name):
    kube = Kube(Configuration(host=api_server.url))
    context = Context(Settings(budgets=True), kube)
    metadata = {"namespace": "ns", "name": "odd", "uid": "u", "ownerReferences": 3, "labels": 5}
    count = f'rlscaler_unreadable_objects_total{{kind="{name}"}}'

    def counted() -> str:
        return context.engine.metrics.render(["rlscaler_unreadable_objects_total"]).decode()

    assert f"{count} 0.0" in counted(), "without it the first failure would be hidden from `increase`"
    kind = next(kind for kind in context.kinds.values() if kind.name == name)
    # What makes it unreadable differs from kind to kind.
    await context.take_in(kind, {"metadata": metadata, **FOREIGN[name]})
    assert f"{count} 1.0" in counted()
    await kube.close()


async def test_histograms_that_are_refused_for_one_policy_are_those_of_all_others(engine, policy_body):
    async def instant(_, promql):
        if "guilty" in promql:
            raise refusal(422, b'{"error": "too many samples"}')
        labels = {"namespace": "ns", "service": next(name for name in names if name in promql)}
        return [{"metric": labels | {"le": "+Inf"}, "value": [0, "7"]}]

    engine.sensing.sources.instant = instant
    names = [f"innocent-{number}" for number in range(3)]
    policies = [engine.registry.put(policy_body(name)) for name in (*names, "guilty")]
    measured = await engine.sensing.histograms(Access("http://prometheus"), policies, 60)
    assert {key[2] for key in measured} <= set(names)
    assert {"innocent-2", "innocent-0"} & {key[2] for key in measured}
