"""Pytest hooks that hold each test to its tier by the CPU time that it takes.

A test that takes more than two seconds of CPU carries the marker `slow`, and `make test` leaves it out. Five seconds
without the marker are a failure, so that the fast tier stays fast. CPU time, unlike wall time, does not grow with the
number of processes that wait for the same core; the remaining difference between machines is measured by a fixed
piece of work when the session begins. A test that happens to be the first to import a library or to compile a kernel
is not judged, since another order of the tests would charge another one.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from typing import Any

import pytest

LIMIT = 5.0
"""CPU seconds, on the reference machine, that an unmarked test or a shared fixture of one may take."""

REFERENCE = 0.1
"""CPU seconds that `_calibration` takes on the machine on which tests were marked."""

MARKERS = ("slow", "long", "chaos", "e2e")
"""Markers of tests that `make test` leaves out: such a test may take any time."""

FOLDERS = ("unit", "property", "simulator")
"""Folders of `tests` whose unmarked tests `make test` runs; tests with a cluster have no limit."""

IMPORTS = 50
"""Modules that a test may import for the first time and be judged all the same."""

SHOWN = 20
"""Number of tests in the list of the slowest."""


def cpu_seconds() -> float:
    """CPU time of this process and of its children that ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _calibration() -> float:
    """CPU seconds of a fixed piece of work."""
    begin = cpu_seconds()
    total = 0
    for number in range(1_500_000):
        total += number % 7
    assert total > 0
    return cpu_seconds() - begin


class CostPlugin:
    """Measures the CPU time of each test, fails an expensive one without a marker, and lists the slowest.

    :param slowness: CPU time of this machine relative to the reference machine, at least 1.
    """

    def __init__(self, slowness: float) -> None:
        self.limit = LIMIT * slowness
        self.begin = self.shared = 0.0
        self.modules = 0
        self.compiled = False
        self.listens = False
        self.costs: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        begin = cpu_seconds()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self.shared += cpu_seconds() - begin

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self.begin, self.shared = cpu_seconds(), 0.0
        self.modules, self.compiled = len(sys.modules), False
        if "numba" in sys.modules and not self.listens:
            self._listen()

    def _listen(self) -> None:
        """Note each compilation by numba; a kernel from its cache on disk is none."""
        from numba.core import event

        class Compilations(event.Listener):
            def on_start(_, event: Any) -> None:  # noqa: N805
                self.compiled = True

            def on_end(_, event: Any) -> None:  # noqa: N805
                pass

        event.register("numba:compile", Compilations())
        self.listens = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report: Any = yield
        if call.when == "call":
            own = cpu_seconds() - self.begin - self.shared
            report.user_properties.append(("cpu_seconds", own + self.shared))
            limited = item.nodeid.split("/")[1] in FOLDERS and not any(map(item.get_closest_marker, MARKERS))
            first = self.compiled or len(sys.modules) - self.modules > IMPORTS
            if report.passed and limited and not first and max(own, self.shared) > self.limit:
                report.outcome = "failed"
                report.longrepr = (
                    f"{item.nodeid} took {own:.1f} s of CPU and its shared fixtures {self.shared:.1f} s, where "
                    f"{self.limit:.1f} s are allowed without a marker: make them cheaper, or mark every test that "
                    "uses them with pytest.mark.slow"
                )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == "cpu_seconds" and report.when == "call":
                self.costs[report.nodeid] = value

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        slowest = sorted(self.costs.items(), key=lambda pair: -pair[1])[:SHOWN]
        if slowest and slowest[0][1] >= 1:
            terminalreporter.section(f"slowest of {len(self.costs)} tests, CPU seconds")
            for nodeid, seconds in slowest:
                terminalreporter.write_line(f"{seconds:7.1f} {nodeid}")


def register(config: pytest.Config) -> None:
    """Add the plugin to a session of pytest."""
    config.pluginmanager.register(CostPlugin(max(1.0, _calibration() / REFERENCE)), "cost")
