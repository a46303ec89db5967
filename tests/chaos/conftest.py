"""A cluster that may be broken, operators behind proxies that break, and one line about each fault in the end."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from rlscaler_dev.cluster.api import ClusterInfo
from rlscaler_dev.cluster.kube import KubeClient
from tests.harness import setup
from tests.harness.control_plane import own_cluster
from tests.harness.load import Exporter
from tests.harness.operators import Operator
from tests.harness.overseer import Overseer
from tests.harness.proxy import Proxy
from tests.harness.replicas import Replicas
from tests.harness.sharing import Sharing
from tests.harness.waiting import until
from tests.harness.world import World

COLD_STARTS = {"gpu": (1.0, 2.0), "cpu": (0.2, 0.8)}


@dataclass
class Line:
    """What is said about one fault."""

    fault: str
    recovered_seconds: float | None = None
    """From the end of the fault until replicas followed the load again; None = nothing to recover from."""
    lowest: str = ""
    """Fewest replicas that were seen, GPU + CPU."""
    allowed: str = ""
    """What they might have fallen to."""
    note: str = ""
    survived: bool = False


FAULT = "fault"
"""Name of the property by which a test's last report brings its line, also from a worker of xdist."""


class Faults:
    """Gathers the lines of all tests, in the process that prints the summary."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.lines += [Line(**value) for name, value in report.user_properties if name == FAULT]


FAULTS = pytest.StashKey[Faults]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FAULTS] = Faults()
    config.pluginmanager.register(config.stash[FAULTS])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    # Some tests look once more at the end whether the operator lives: it has survived where nothing failed at all.
    if report.when != "setup" and (line := getattr(item, "funcargs", {}).get("line")) is not None:
        line.survived = report.passed and (line.survived or report.when == "call")
        if report.when == "teardown":
            report.user_properties.append((FAULT, asdict(line)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash[FAULTS].lines
    if not lines:
        return
    terminalreporter.section("faults")
    header = ("fault", "survived", "recovered after", "lowest replicas seen", "allowed", "")
    rows = [header] + [
        (
            line.fault,
            "yes" if line.survived else "NO",
            "-" if line.recovered_seconds is None else f"{line.recovered_seconds:.1f} s",
            line.lowest,
            line.allowed,
            line.note,
        )
        for line in lines
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    for row in rows:
        text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        terminalreporter.write_line(text.rstrip())
    folder = config.rootpath / "results"
    folder.mkdir(exist_ok=True)
    (folder / "chaos.json").write_text(json.dumps([asdict(line) for line in lines], indent=1) + "\n")


@pytest.fixture
def line(request: pytest.FixtureRequest) -> Line:
    """The test's line in the table; the test fills it in."""
    return Line(request.node.name.removeprefix("test_").replace("_", " "))


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterInfo]:
    """One of our own: API server and etcd are killed and stopped in here."""
    with own_cluster("chaos", cold_start_seconds=COLD_STARTS, metrics_server=False) as started:
        yield started


@pytest.fixture(scope="session")
def kube(cluster: ClusterInfo) -> Iterator[KubeClient]:
    with KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
        setup.install(client)
        setup.permit(client)
        yield client


@pytest.fixture(scope="session")
def exporter(cluster: ClusterInfo) -> Iterator[Exporter]:
    server = Exporter()
    cluster.add_scrape_target("chaos", server.address)
    yield server
    server.close()


@pytest.fixture(scope="module")
def world(kube: KubeClient, exporter: Exporter, request: pytest.FixtureRequest) -> World:
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_").replace("_", "-")
    return World(kube, f"{name}-{os.getpid()}", exporter)


@pytest.fixture(scope="module")
def replicas(cluster: ClusterInfo, world: World) -> Iterator[Replicas]:
    watch = Replicas(cluster.kubeconfig, world.namespace)
    yield watch
    watch.close()


@pytest.fixture(scope="session")
def with_budgets(kube: KubeClient) -> None:
    setup.permit_budgets(kube)


@pytest.fixture(scope="module")
def sharing(world: World, with_budgets: None) -> Iterator[Sharing]:
    """The module's services that share budgets; these are deleted in the end."""
    made = Sharing(world)
    yield made
    made.close()


@pytest.fixture(scope="module")
def overseer(cluster: ClusterInfo, world: World) -> Iterator[Overseer]:
    with Overseer(cluster.kubeconfig, world.namespace) as one:
        until(lambda: one.synced)
        yield one


@pytest.fixture(scope="module")
def proxy() -> Iterator[Callable[[str, Path | None], Proxy]]:
    """Stand between a client and a server; the second argument is the certificate authority of an https server."""
    opened: list[Proxy] = []

    def stand_before(upstream: str, ca: Path | None = None) -> Proxy:
        context = ssl.create_default_context(cafile=str(ca)) if ca is not None else None
        opened.append(Proxy(upstream, context))
        return opened[-1]

    yield stand_before
    for one in opened:
        one.close()


@pytest.fixture(scope="module")
def api_proxy(cluster: ClusterInfo, proxy: Callable[..., Proxy]) -> Callable[[], Proxy]:
    """A new proxy before the API server."""
    return lambda: proxy(cluster.server, cluster.state_dir / "pki" / "ca.crt")


@pytest.fixture(scope="module")
def start(
    cluster: ClusterInfo, kube: KubeClient, world: World, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Operator]]:
    """Start an operator for the module's namespace, maybe behind a proxy; all are stopped in the end.

    Its kubeconfig is `kubeconfig` in the folder of its log.
    """
    started: list[Operator] = []

    def run(*options: str, server: str | None = None, token: str | None = None) -> Operator:
        folder = tmp_path_factory.mktemp("operator")
        bearer = token or setup.token(kube)
        kubeconfig = setup.write_kubeconfig(folder / "kubeconfig", cluster.kubeconfig, bearer, server)
        options = ("--lease-name", world.namespace, "--namespace", world.namespace, *options)
        started.append(Operator(kubeconfig, str(cluster.prometheus_url), folder, *options))
        return started[-1]

    yield run
    for one in started:
        one.stop()
