"""Runs as Ray tasks: order, lost workers, failures, several seeds, and nothing left behind.

`make chaos` runs those that kill processes, which take minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.manifest import Manifest
from rlscaler_rl.training import checkpoint, seeds
from rlscaler_rl.training.config import ConfigError, TrainingConfig
from rlscaler_rl.training.distributed import map_runs, session
from rlscaler_rl.training.errors import TrainingError
from tests.harness.waiting import until

pytestmark = pytest.mark.slow

if find_spec("ray") is None:
    pytest.skip("the extra ray is not installed", allow_module_level=True)

WAIT_SECONDS = 600.0

HALFWAY = """
import psutil
from ray._private.node import Node
from rlscaler_rl.training.distributed import session
whole, first = Node.start_ray_processes, []
def halfway(node):
    whole(node)
    if not first:
        first.extend(psutil.Process().children(recursive=True))
        raise Exception("given up")
Node.start_ray_processes = halfway
with session("local") as ray:
    print(any(child.is_running() for child in first), bool(first))
print(psutil.Process().children(recursive=True))
"""

FOREVER = "import threading; threading.Event().wait()"
RUNS = """
import signal
import timeit
from rlscaler_rl.training.distributed import map_runs
# As in the foreground of a terminal: what a script starts in the background inherits that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
list(map_runs(timeit.timeit, {statements!r}))
"""


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """One Ray for all; its processes are gone when it ends."""
    # The tracker of Python's own processes stays as long as the interpreter, wherever it was started first.
    resource_tracker.ensure_running()
    before = set(psutil.Process().children(recursive=True))
    with session("local") as module:
        module.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield module
    assert set(psutil.Process().children(recursive=True)) <= before


@pytest.fixture(scope="module")
def config(small) -> TrainingConfig:
    """Many checkpoints, one validation."""
    return changed(small, steps=12 * 8 * 150, checkpoint_episodes=20, evaluation_episodes=1000)


def changed(config: TrainingConfig, **agent: Any) -> TrainingConfig:
    return config.model_copy(update={"agent": config.agent.model_copy(update=agent)})


def visit(job: tuple[Path, int]) -> tuple[int, int, str | None]:
    """The number, how often the job was begun, and the threads it may use; job 1 loses its first worker."""
    folder, number = job
    visits = folder / f"{number}.txt"
    begun = int(visits.read_text()) + 1 if visits.exists() else 1
    visits.write_text(str(begun))
    if number == 1 and begun == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 9:
        raise ValueError("nine is not trained")
    return number, begun, os.environ.get("OMP_NUM_THREADS")


@pytest.mark.usefixtures("ray")
def test_results_come_in_order_and_a_lost_worker_is_replaced(tmp_path):
    results = list(map_runs(visit, [(tmp_path, number) for number in range(3)]))
    assert results == [(0, 1, "1"), (1, 2, "1"), (2, 1, "1")]
    with pytest.raises(ValueError, match="nine"):
        list(map_runs(visit, [(tmp_path, 9), (tmp_path, 10)]))


@pytest.mark.chaos
def test_a_start_that_fails_halfway_leaves_nothing_behind():
    """In a process of its own, with all warnings: the first node has its processes and is then given up."""
    ended = subprocess.run([sys.executable, "-Walways", "-c", HALFWAY], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "True", "[]"]
    assert "ResourceWarning" not in ended.stderr


@pytest.mark.usefixtures("ray")
def test_every_port_is_on_the_loopback_address():
    listening = set()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # Ray's idle workers come and go
            found = process.net_connections("inet")
            listening |= {connection.laddr.ip for connection in found if connection.status == psutil.CONN_LISTEN}
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


@pytest.mark.chaos
@pytest.mark.usefixtures("ray")
def test_seeds_survive_a_killed_worker_and_become_one_network(tmp_path, config):
    killed: list[int] = []
    over = threading.Event()
    killer = threading.Thread(target=_kill_once, args=(tmp_path / "seed_1", killed, over))
    killer.start()
    said: list[str] = []
    try:
        outcomes = seeds.train_seeds(config, [1, 2], tmp_path, say=said.append)
    finally:
        over.set()
    killer.join()
    assert killed
    assert [outcome.seed for outcome in outcomes] == [1, 2]
    assert [outcome.error for outcome in outcomes] == ["", ""]
    assert [outcome.steps for outcome in outcomes] == [config.agent.steps] * 2
    assert said[0].startswith("seed 1: best J")
    body = json.loads((tmp_path / "seeds.json").read_text())
    best = min(outcomes, key=lambda outcome: outcome.j)
    assert body["best"] == best.seed
    made = tmp_path / "distilled"
    assert (tmp_path / "policy.onnx").read_bytes() == (made / "policy.onnx").read_bytes()
    manifest = Manifest.load(tmp_path / "manifest.json")
    assert manifest == Manifest.load(made / "manifest.json")
    Actor.load(tmp_path / "policy.onnx", manifest)
    assert "std" in seeds.table(outcomes)
    with pytest.raises(ConfigError, match="--resume"):
        seeds.train_seeds(config, [1], tmp_path)
    with pytest.raises(ConfigError, match="no seed_"):
        seeds.train_seeds(config, [1], tmp_path / "elsewhere", resume=True)


def _kill_once(folder: Path, killed: list[int], over: threading.Event) -> None:
    """SIGKILL the process that trains in `folder` once it has a checkpoint; it is the one with a file open there."""
    while not killed and not over.wait(0.05):
        if checkpoint.found(folder):
            for process in psutil.Process().children(recursive=True):
                if any(str(folder) in file.path for file in process.open_files()):
                    process.kill()
                    killed.append(process.pid)


@pytest.mark.chaos
def test_a_worker_without_the_disk_goes_on_from_what_it_sent(tmp_path, ray, config):
    first = seeds.train_seeds(config, [3], tmp_path / "elsewhere")
    kept = seeds.pack(tmp_path / "elsewhere" / "seed_3")
    folder = str(tmp_path / "not" / "there")
    keeper = seeds._keeper(ray, {folder: kept})
    job = seeds.SeedTask(
        config=seeds._seeded(changed(config, steps=config.agent.steps + 96), 3),
        folder=folder,
        token="another",
        keeper=keeper,
    )
    ((outcome, files),) = map_runs(seeds.train_seed, [job])
    assert outcome.steps == config.agent.steps + 96
    assert outcome.seconds > first[0].seconds
    assert {"policy.onnx", "manifest.json", "best_model.zip", "training_progress.json"} <= files.keys()
    rows = json.loads(files["training_progress.json"])
    assert [row["steps"] for row in rows] == [config.agent.steps, outcome.steps]
    assert set(ray.get(keeper.sent.remote(folder))) >= {"policy.onnx"}
    assert not Path(job.folder).exists()


def test_a_seed_that_diverges_is_reported_and_the_others_count(tmp_path, small):
    good = seeds.SeedResult(1, steps=10, j=5.0, cost=4.0, late_percent=2.0)
    bad = seeds.train_seed(
        seeds.SeedTask(
            config=seeds._seeded(changed(small, learning_rate=1e30), 2),
            folder=str(tmp_path / "seed_2"),
            token="",
        )
    )[0]
    assert "is not finite" in bad.error
    assert "failed: after" in seeds.table([good, bad])
    with pytest.raises(TrainingError, match="every seed failed"):
        seeds._finish(tmp_path, small, [bad], print)


@pytest.mark.chaos
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_an_interrupted_command(number):
    program = [sys.executable, "-c", RUNS.format(statements=[FOREVER] * 2)]
    process = subprocess.Popen(program, stderr=subprocess.DEVNULL, start_new_session=True)
    watched = psutil.Process(process.pid)
    children = _children_once(
        process,
        lambda: any("ray::timeit" in " ".join(_words(child)) for child in watched.children(recursive=True)),
    )
    # Ctrl-C reaches everything in the foreground, a kill one process.
    os.killpg(process.pid, number) if number == signal.SIGINT else process.kill()
    process.wait(timeout=WAIT_SECONDS)
    assert not psutil.wait_procs(children, timeout=WAIT_SECONDS)[1]


@pytest.mark.chaos
def test_with_the_first_failure_the_others_end(tmp_path):
    runs, fail, log = tmp_path / "runs", tmp_path / "fail", tmp_path / "log"
    os.mkfifo(fail)
    fails = f"open({str(fail)!r}).readline(); 1 / 0"
    other = f"open({str(runs)!r}, 'w').close(); {FOREVER}"
    program = [sys.executable, "-c", RUNS.format(statements=[fails, other])]
    with log.open("w") as stderr:
        process = subprocess.Popen(program, stderr=stderr, start_new_session=True)
    children = _children_once(process, runs.exists)
    with fail.open("r+b", buffering=0) as told:  # for reading too: opening does not wait for the other end
        told.write(b"\n")
        assert process.wait(timeout=WAIT_SECONDS) == 1
    assert "ZeroDivisionError" in log.read_text()
    assert not psutil.wait_procs(children, timeout=WAIT_SECONDS)[1]


def _children_once(process: subprocess.Popen[bytes], running: Callable[[], bool]) -> list[psutil.Process]:
    """All that a command has started, when `running` becomes true; it must not end before."""

    def look() -> bool:
        assert process.poll() is None
        return running()

    until(look, WAIT_SECONDS)
    return psutil.Process(process.pid).children(recursive=True)


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_an_address_that_cannot_be_used_is_refused():
    """In a process of its own: Ray keeps the environment of its first import, and here it is the local one's."""
    code = "from rlscaler_rl.training.distributed import map_runs; list(map_runs(print, [], 'ray://127.0.0.1:1'))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert ended.returncode == 1
    assert re.search(r"DistributionError: .*ray://127\.0\.0\.1:1: .*refused", ended.stderr)
