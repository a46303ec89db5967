"""The composition root: `build_engine` wires all objects of the loop, for operator, tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from rlscaler_operator.actuation.apply import Actuator
from rlscaler_operator.actuation.idle import IdlePods
from rlscaler_operator.actuation.pod_sizes import NewPodSizes, Sizer
from rlscaler_operator.actuation.resize import Resizer
from rlscaler_operator.actuation.restore import Deletion
from rlscaler_operator.cluster.bodies import Key
from rlscaler_operator.cluster.cache import WatchCache
from rlscaler_operator.cluster.concurrency import ConcurrencyLimiter
from rlscaler_operator.cluster.events import Events
from rlscaler_operator.cluster.holders import NodeHolders
from rlscaler_operator.cluster.kinds import TargetKinds
from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.cluster.models import CONFIG_MAPS
from rlscaler_operator.cluster.references import References
from rlscaler_operator.cluster.shards import Shards
from rlscaler_operator.cluster.sized_pods import SizedPods
from rlscaler_operator.loop.actors import Actors
from rlscaler_operator.loop.apply_and_report import Reconciler
from rlscaler_operator.loop.background import Background
from rlscaler_operator.loop.diagnose import Diagnostician
from rlscaler_operator.loop.engine import Engine
from rlscaler_operator.loop.fence import Fence
from rlscaler_operator.loop.operators import OtherOperators, Questions
from rlscaler_operator.loop.prepare import Preparer
from rlscaler_operator.loop.sense import Sensing
from rlscaler_operator.loop.shared_budgets import SharedBudgets
from rlscaler_operator.loop.tick import Ticker
from rlscaler_operator.reporting.budgets import BudgetReporter
from rlscaler_operator.reporting.metrics import Metrics
from rlscaler_operator.reporting.publish import Publisher
from rlscaler_operator.reporting.reporter import Reporter
from rlscaler_operator.sensing.access import SECRETS
from rlscaler_operator.sensing.queries import load_seconds, windows
from rlscaler_operator.settings import Settings
from rlscaler_operator.shadow.shadows import Shadows
from rlscaler_operator.state.policy import Policy
from rlscaler_operator.state.registry import Registry


def build_engine(settings: Settings, kube: Kube, turned: Callable[[], None] = lambda: None) -> Engine:
    """Return the engine with all of its parts; `turned` is called at each turn of its loop."""

    # The reporters call the engine, which is made of them.
    def forget(key: Key, uid: str) -> None:
        engine.forget(key, uid)

    def forget_budget(name: str) -> None:
        engine.budgets.forget(name)

    def report_failure(policy: Policy, error: Exception) -> Coroutine[Any, Any, None]:
        return engine.reconciler.apply_and_report(policy, None, error)

    shards, background, metrics = Shards(kube, settings), Background(), Metrics()
    fence = Fence(metrics, background.launch, report_failure)
    background.failed = lambda policy, error: fence.failed(policy, "finish a task", error)
    limiter = ConcurrencyLimiter(settings.write_concurrency)
    kube.on_back_off = limiter.back_off
    # Whether a node is empty is known only where the pods of all namespaces are seen.
    holders = NodeHolders() if settings.pod_deletion_cost and not settings.namespaces else None
    sized_pods = SizedPods() if settings.resize else None
    cache = WatchCache(kinds=TargetKinds(settings.target_kinds), holders=holders, sizes=sized_pods)
    service, resources = windows(settings)
    registry = Registry(partial(load_seconds, window=service), max(service.seconds, resources.seconds))
    metrics.exists = lambda key: registry.get(key) is not None
    events = Events(kube, limiter, settings.identity)
    config_maps = References(kube, CONFIG_MAPS, settings.reload_seconds, background.wake.set)
    secrets = References(kube, SECRETS, settings.reload_seconds, background.wake.set)
    actors, shadows = Actors(settings, config_maps), Shadows(settings.window_seconds)
    sensing = Sensing(settings, cache, registry, metrics, secrets, fence)
    preparer = Preparer(settings, cache, metrics, actors, shadows, sensing.streams)
    publisher = Publisher(kube, shards, limiter, settings, registry, events, metrics, forget, background.launch)
    reporter = Reporter(settings, events, metrics, publisher)
    resizer = None if sized_pods is None else Resizer(limiter, sized_pods)
    sizer = Sizer(kube, shards, cache, resizer, NewPodSizes(limiter), settings.resize_new_pods)
    idle = None
    if settings.pod_deletion_cost:
        idle = IdlePods(kube, limiter, cache, sensing.query, settings.write_timeout_seconds)
    reconciler = Reconciler(
        settings,
        shards,
        cache,
        registry,
        metrics,
        Diagnostician(kube, cache, registry, settings.lease),
        Actuator(kube, shards, limiter, cache, settings, idle),
        sizer,
        reporter,
    )
    questions = Questions(shards, limiter, events)
    budget_reporter = BudgetReporter(settings, shards, limiter, events, metrics, forget_budget, background.launch)
    budgets = SharedBudgets(
        settings,
        kube,
        cache,
        registry,
        shards,
        budget_reporter,
        reporter.audit,
        questions,
        background.launch,
        lambda: engine.acting,
        background.wake.set,
    )
    ticker = Ticker(
        settings,
        limiter,
        registry,
        metrics,
        sensing,
        preparer,
        shadows,
        reconciler,
        budgets.sharing,
        background.launch,
        fence,
    )
    engine = Engine(
        settings=settings,
        shards=shards,
        background=background,
        fence=fence,
        metrics=metrics,
        limiter=limiter,
        cache=cache,
        registry=registry,
        events=events,
        config_maps=config_maps,
        secrets=secrets,
        actors=actors,
        shadows=shadows,
        sensing=sensing,
        preparer=preparer,
        reporter=reporter,
        reconciler=reconciler,
        operators=OtherOperators(questions, shards, registry, background.launch),
        deletion=Deletion(kube, shards, limiter, cache, registry, events, settings, sizer),
        budgets=budgets,
        ticker=ticker,
        turned=turned,
    )
    metrics.window.set(settings.window_seconds)
    return engine
