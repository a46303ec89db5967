"""Prometheus fails in every way we know of, each before a policy of its own, and all at the same time.

While nothing trustworthy is known the load falls to almost nothing, so that whoever believes a wrong answer scales
down. Where the metrics stay right the load stays up, and the replicas must go on carrying it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.chaos.conftest import Line
from tests.harness.load import Exporter, Load
from tests.harness.proxy import Fault, Proxy
from tests.harness.replicas import Replicas, capacity, described
from tests.harness.waiting import looks, until

BEFORE, DURING, AFTER = 60.0, 1.0, 150.0
"""Requests per second: before the fault, during one that blinds, and after it."""

START = (3, 6)
HOLD_SECONDS = 36.0
"""More than three action intervals of 10 s: the fallback acts as well."""

RECOVERY_SECONDS = 60.0
SKEW_SECONDS = 120.0

Json = dict[str, Any]


def edit(change: Callable[[list[Json]], list[Json]]) -> Fault:
    """Change the vector of every answer."""

    def body(content: bytes) -> bytes:
        answer = json.loads(content)
        answer["data"]["result"] = change(answer["data"]["result"])
        return json.dumps(answer).encode()

    return Fault(change=body)


def part(body: bytes) -> bytes:
    """What Thanos says while one of its stores is away: half of everything, and a warning."""
    answer = json.loads(body)
    answer["data"]["result"] = [
        dict(one, value=[one["value"][0], str(float(one["value"][1]) / 2)]) if one["metric"].get("_") == "v" else one
        for one in answer["data"]["result"]
    ]
    warning = "fetch series for {}: receive series from Addr: store-1 MinTime: 0: rpc error: code = Unavailable"
    return json.dumps(answer | {"warnings": [warning]}).encode()


def shifted(seconds: float) -> Fault:
    """What a Prometheus says whose clock is ahead: it evaluates and stamps by that clock."""

    def change(result: list[Json]) -> list[Json]:
        for series in result:
            moment, value = series["value"]
            dated = series["metric"].get("_") == "t"
            series["value"] = [moment + seconds, str(float(value) + seconds) if dated else value]
        return result

    return edit(change)


def doubled(result: list[Json]) -> list[Json]:
    """Each series a second time with a tenth of its value, as two replicas without deduplication give it."""
    tenth = [dict(one, value=[one["value"][0], str(float(one["value"][1]) / 10)]) for one in result]
    return result + [one for one in tenth if one["metric"].get("_") == "v"]


@dataclass
class Stage:
    """One policy with its service and the proxy before its Prometheus."""

    load: Load
    proxy: Proxy
    exporter: Exporter
    again: Callable[[Exporter], AbstractContextManager[None]]
    """Have an exporter scraped a second time."""


@dataclass(frozen=True)
class Case:
    """One fault."""

    name: str
    fault: Callable[[Stage], AbstractContextManager[Any]]
    blind: bool = True
    """Nothing trustworthy is known during the fault."""
    dated: bool = False
    recovery_seconds: float = RECOVERY_SECONDS


@contextmanager
def setting(load: Load, **values: Any) -> Iterator[None]:
    before = {name: getattr(load, name) for name in values}
    for name, value in values.items():
        setattr(load, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(load, name, value)


@contextmanager
def resets(load: Load) -> Iterator[None]:
    """The service is restarted at once, and once more when the fault ends."""
    load.restart()
    yield
    load.restart()


def by_proxy(fault: Fault) -> Callable[[Stage], AbstractContextManager[None]]:
    return lambda stage: stage.proxy.fault(fault)


CASES = [
    Case("down", lambda stage: stage.proxy.down()),
    Case("slow-10s", by_proxy(Fault(delay_seconds=10))),
    Case("hangs-up", by_proxy(Fault(drop=True))),
    Case("html", by_proxy(Fault(status=200, body=b"<html>Sign in</html>", content_type="text/html"))),
    Case("http-500", by_proxy(Fault(status=500, body=b"boom", content_type="text/plain"))),
    Case("truncated-json", by_proxy(Fault(change=lambda body: body[: len(body) // 2]))),
    Case("other-json", by_proxy(Fault(status=200, body=b'{"status": "success", "data": {"result": {}}}'))),
    Case("empty", by_proxy(edit(lambda _: []))),
    Case("duplicated-series", by_proxy(edit(doubled))),
    Case("partial", by_proxy(Fault(change=part))),
    Case("nan", lambda stage: setting(stage.load, fault="nan")),
    Case("absent", lambda stage: setting(stage.load, fault="absent")),
    Case("stale", lambda stage: setting(stage.load, fault="stale"), dated=True),
    Case("exporter-clock-2min-behind", lambda s: setting(s.load, skew_seconds=-SKEW_SECONDS), dated=True),
    Case("prometheus-clock-2min-ahead", by_proxy(shifted(SKEW_SECONDS)), blind=False),
    Case("prometheus-clock-2min-behind", by_proxy(shifted(-SKEW_SECONDS)), blind=False),
    Case("counter-reset", lambda stage: resets(stage.load), blind=False),
    Case("scraped-twice", lambda stage: stage.again(stage.exporter), blind=False),
    Case("series-burst", lambda stage: setting(stage.load, paths=5000), blind=False),
    Case("none", lambda _: nullcontext(), blind=False),
]


@dataclass
class Seen:
    """What became of one policy."""

    begun: float = 0.0
    blind_since: float | None = None
    reason: str = ""
    lowest: tuple[int, int] = (0, 0)
    """Of each pool since it was noticed."""
    held: tuple[int, int] = (0, 0)
    weakest: tuple[int, int] = (0, 0)
    """Of both pools together since the fault began."""
    recovered: float | None = None


@dataclass
class Episode:
    """All cases from the first sample to the last replica."""

    cases: list[Case]
    world: Any
    replicas: Replicas
    stages: dict[str, Stage]
    seen: dict[str, Seen] = field(default_factory=dict)

    def run(self) -> None:
        for case in self.cases:
            until(lambda case=case: self.world.condition(case.name, "Ready")[0] == "True", 90)
            until(lambda case=case: capacity(self.replicas.now(case.name)) >= BEFORE / 0.8)
        with ExitStack() as faults:
            for case in self.cases:
                faults.enter_context(case.fault(self.stages[case.name]))
                self.seen[case.name] = Seen(begun=time.monotonic())
                if case.blind:
                    self.stages[case.name].load.rate = DURING
            self._look(HOLD_SECONDS)
            for case in self.cases:
                self._note(case, self.seen[case.name])
        for stage in self.stages.values():
            stage.load.rate = AFTER
        self._recover()

    def _look(self, seconds: float) -> None:
        """When each blind policy says so, until the time is over."""
        waiting = {case.name for case in self.cases if case.blind}
        for _ in looks(seconds):
            for name in sorted(waiting):
                status, reason = self.world.condition(name, "Ready")
                if status == "False":
                    seen = self.seen[name]
                    seen.blind_since, seen.reason, seen.held = time.monotonic(), reason, self.replicas.now(name)
                    waiting.discard(name)

    def _note(self, case: Case, seen: Seen) -> None:
        since = seen.blind_since or seen.begun
        seen.lowest = self.replicas.lowest(case.name, since)
        seen.weakest = self.replicas.weakest(case.name, seen.begun)
        if not case.blind:
            seen.reason = "".join(self.world.condition(case.name, "Ready"))

    def _recover(self) -> None:
        waiting = {case.name: case.recovery_seconds for case in self.cases}
        for elapsed in looks(max(waiting.values()), 0.25):
            for name, seconds in list(waiting.items()):
                if capacity(self.replicas.now(name)) >= AFTER:
                    self.seen[name].recovered = elapsed
                if self.seen[name].recovered is not None or elapsed > seconds:
                    del waiting[name]
            if not waiting:
                break


QUICK = {"down", "truncated-json", "duplicated-series", "partial", "stale", "prometheus-clock-2min-ahead", "none"}
"""What a plain test run shows; `make chaos` runs all."""


@pytest.fixture(scope="module")
def episode(cluster, world, replicas, proxy, start, request) -> Iterator[Episode]:
    exporters: list[Exporter] = []
    stages: dict[str, Stage] = {}
    chosen = [one.callspec.params["case"].name for one in request.session.items if one.parent is request.node]
    cases = [case for case in CASES if case.name in chosen]

    @contextmanager
    def again(exporter: Exporter) -> Iterator[None]:
        target = cluster.add_scrape_target("chaos-again", exporter.address)
        yield
        target.unlink()

    allowed: list[str] = []
    for case in cases:
        exporters.append(Exporter())
        cluster.add_scrape_target(f"chaos-{case.name}", exporters[-1].address)
        load = world.service(case.name, rate=BEFORE, dated=case.dated, exporter=exporters[-1])
        stages[case.name] = Stage(load, proxy(cluster.prometheus_url), exporters[-1], again)
        allowed += ["--allow-prometheus-url", stages[case.name].proxy.url]
        world.deployments(case.name, *START)
    start(*allowed)
    for case in cases:
        url = stages[case.name].proxy.url
        metrics = {"prometheus": {"url": url}, "maxAgeSeconds": 8 if case.blind else 30}
        world.policy(case.name, senseSeconds=2, metrics=metrics)
    one = Episode(cases, world, replicas, stages)
    one.run()
    yield one
    for exporter in exporters:
        exporter.close()


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=() if c.name in QUICK else pytest.mark.chaos) for c in CASES]
)
def test_prometheus(episode: Episode, case: Case, line: Line) -> None:
    seen = episode.seen[case.name]
    line.fault = f"Prometheus: {case.name}"
    line.lowest = described(seen.lowest if case.blind else seen.weakest)
    line.recovered_seconds = seen.recovered
    line.note = seen.reason
    if case.blind:
        line.allowed = described(seen.held)
        assert seen.blind_since is not None, "the fault was not noticed"
        assert seen.lowest >= seen.held
        assert all(low >= held for low, held in zip(seen.lowest, seen.held, strict=True))
    else:
        line.allowed = f"{BEFORE:g} req/s"
    assert capacity(seen.weakest) >= BEFORE
    assert seen.recovered is not None, "replicas did not follow the load again"
