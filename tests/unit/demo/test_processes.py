"""Supervision of real, tiny processes: failures are noticed and shown, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rlscaler_dev.cluster.processes import stop, strays
from rlscaler_dev.demo.leftovers import alone, journal_of
from rlscaler_dev.demo.processes import Supervisor, tail
from rlscaler_dev.exceptions import ChildError, DemoError
from tests.harness.waiting import until

FOREVER = "import signal; print('up', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
PARENT = """
import subprocess, sys, signal
child = subprocess.Popen([sys.executable, "-c", {child!r}])
print(child.pid, flush=True)
signal.pause()
"""
BROKEN = "print('loading'); raise SystemExit('port 80 is in use')"


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path, {})
    yield supervisor
    supervisor.stop_all()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_stopping_ends_the_process_and_all_it_started(supervisor: Supervisor, tmp_path: Path) -> None:
    child = supervisor.start("parent", python(PARENT.format(child=STUBBORN)))
    supervisor.wait_until(child, lambda: "up" in (tmp_path / "parent.log").read_text(), 20)
    grandchild = int((tmp_path / "parent.log").read_text().split()[0])
    supervisor.stop("parent", grace_seconds=0.2)
    assert not runs(child.process.pid)
    assert not runs(grandchild)


def test_a_crash_is_noticed_with_the_end_of_the_log(supervisor: Supervisor) -> None:
    child = supervisor.start("service", python(BROKEN))
    with pytest.raises(ChildError, match=r"service ended unexpectedly \(exit code 1\)(.|\n)*port 80 is in use"):
        supervisor.wait_until(child, lambda: False, 20)


def test_a_child_that_is_never_ready_is_named(supervisor: Supervisor) -> None:
    child = supervisor.start("slow", python(FOREVER))
    with pytest.raises(ChildError, match="slow was not ready after 0 s"):
        supervisor.wait_until(child, lambda: False, 0.1)


def test_a_command_that_does_not_exist_is_named(supervisor: Supervisor) -> None:
    with pytest.raises(ChildError, match="locust cannot be started: /nowhere/locust: No such file"):
        supervisor.start("locust", ["/nowhere/locust"])


def test_a_killed_child_shows_its_signal(supervisor: Supervisor) -> None:
    child = supervisor.start("operator", python(FOREVER))
    child.process.kill()
    with pytest.raises(ChildError, match="killed by SIGKILL"):
        supervisor.wait_until(child, lambda: False, 20)


def test_tail_of_a_missing_and_of_a_long_log(tmp_path: Path) -> None:
    assert "No such file" in tail(tmp_path / "none")
    (tmp_path / "log").write_text("\n".join(str(i) for i in range(100)))
    assert tail(tmp_path / "log", lines=2) == "  98\n  99"


HOLDER = """
import sys
from pathlib import Path
from rlscaler_dev.cluster.processes import MARKER
from rlscaler_dev.demo.leftovers import alone
from rlscaler_dev.demo.processes import Supervisor
with alone("demo", print) as journal:
    Supervisor(Path(sys.argv[1]), {MARKER: str(journal)}).start("parent", [sys.executable, "-c", sys.argv[2]])
    print("started", flush=True)
    import signal; signal.pause()
"""


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """A demo in a process of its own that holds the journal and has children."""
    monkeypatch.setenv("RLSCALER_CACHE", str(tmp_path / "cache"))
    command = [sys.executable, "-c", HOLDER, str(tmp_path), PARENT.format(child=FOREVER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "started"
        until(lambda: "up" in (tmp_path / "parent.log").read_text())
        yield process
        process.kill()
    stop([], journal_of("demo"))


def test_a_second_demo_of_the_same_name_is_refused(holder: subprocess.Popen[str]) -> None:
    with pytest.raises(DemoError, match=f"process {holder.pid}.*--cluster-name"), alone("demo", print):
        pytest.fail("two demos held one journal")
    with alone("another", pytest.fail) as journal:
        assert strays(journal) == []


def test_the_remains_of_a_killed_demo_are_found_and_ended(holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    remains, lines = strays(journal_of("demo")), list[str]()
    assert len(remains) == 2
    with alone("demo", lines.append):
        assert not any(runs(process.pid) for process in remains)
    ended = "ended 2 processes of a demo that was killed"
    assert lines == [ended, "removing the cluster of a demo that was killed"]
    assert not list(journal_of("demo").parent.iterdir()), "neither journal nor lock is left"


def test_what_is_missing_is_waited_for_and_named(supervisor: Supervisor) -> None:
    left = ["a replica", "a weight"]
    supervisor.wait_while(lambda: left.pop() if left else "", 20)
    with pytest.raises(DemoError, match="waited 0 s for a replica; the logs are in"):
        supervisor.wait_while(lambda: "a replica", 0)
