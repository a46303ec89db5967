"""Many runs at once as Ray tasks: on this machine, or on a cluster.

Every task has one CPU. A task whose worker is lost is started again; the function decides whether it begins anew (a
training goes on from its checkpoint).
"""

from __future__ import annotations

import gc
import os
import socket
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from rlscaler_rl.training.errors import DistributionError

Config = TypeVar("Config")
Result = TypeVar("Result")

LOCAL = "local"
WORKERS = 2
"""Local processes; on a cluster as many as it has CPUs."""

RETRIES = 3
"""Most restarts of a task whose worker was lost."""

LOOPBACK = "127.0.0.1"

STARTS = 4
"""Attempts at starting local Ray. It gives up when a node is not ready after 30 s, as the first one after an
installation on a busy machine; the next attempt finds the files read already."""

OBJECT_STORE_BYTES = 128 * 2**20
"""Size of the object store of local Ray: configurations and results are small."""

# Read by Ray when it is imported, and by its daemons when they start.
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}

# The first, whatever its name says, makes 127.0.0.1 the node's address: otherwise every port is open to the network.
# By default the node's daemon ends itself when a helper of its needs more than 15 s to begin.
_LOCAL_ENVIRONMENT = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_agent_register_timeout_ms": "60000"}


def map_runs(
    function: Callable[[Config], Result],
    configs: Iterable[Config],
    address: str | None = None,
    *,
    workers: int = WORKERS,
) -> Iterator[Result]:
    """Yield `function` of every configuration, run side by side, in the order of `configs`, each as soon as it is done.

    `function` belongs to an installed module (its workers import it); its arguments and results can be pickled.
    `address` is None or "local" for `workers` processes on this machine, which are gone when the iterator ends,
    "auto" inside a cluster, or "ray://host:10001". Raises the error of the first failing run; DistributionError where
    Ray is missing or not reached. Runs that are not over then, or when the iterator is closed, end with the session.
    """
    with session(address, workers=workers) as ray:
        task = ray.remote(num_cpus=1, max_retries=RETRIES)(function)
        pending = [task.remote(config) for config in configs]
        # Nothing is cancelled: Ray 2.60 ends the calling process where a task is cancelled as it completes ("Tried to
        # complete task that was not pending").
        while pending:
            yield ray.get(pending[0])
            pending.pop(0)


@contextmanager
def session(address: str | None = None, *, workers: int = WORKERS) -> Iterator[Any]:
    """A connection to Ray (the module), for several calls of `map_runs` to share; inside another one, that one.

    When it ends so does everything that it has running, as a job of Ray does when its driver goes.
    """
    local = address in (None, LOCAL)
    ray = _ray(_ENVIRONMENT | (_LOCAL_ENVIRONMENT if local else {}))
    if ray.is_initialized():
        yield ray
        return
    with tempfile.TemporaryDirectory(prefix="rlscaler-ray-", ignore_cleanup_errors=True) as scratch:
        try:
            if local:
                _start(ray, workers, scratch)
            else:
                _reach(str(address))
                ray.init(address, logging_level="warning")
        except (OSError, RuntimeError, ValueError) as error:
            ray.shutdown()
            hint = "" if local else "; does it run the same Ray, and does it want RAY_AUTH_MODE=token and a token?"
            raise DistributionError(f"Ray at {address or LOCAL}: {error}{hint}") from error
        try:
            yield ray
        finally:
            ray.shutdown()


def _start(ray: Any, workers: int, scratch: str) -> None:
    import psutil

    before = set(psutil.Process().children(recursive=True))
    for left in reversed(range(STARTS)):
        try:
            _init(ray, workers, scratch)
            break
        except Exception as error:  # Ray raises a bare one, and forgets what it had started before
            ray.shutdown()
            left_behind = [child for child in psutil.Process().children(recursive=True) if child not in before]
            for child in left_behind:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            psutil.wait_procs(left_behind)
            _forget(error)
            if not left:
                raise RuntimeError(f"it did not start in {STARTS} attempts ({error})") from error
    if ray.util.get_node_ip_address() != LOOPBACK:
        raise RuntimeError("it was imported before `map_runs` was called and opened its ports to the network")


def _forget(error: Exception) -> None:
    """Let go of the half-started node in the frames of `error`, which does not know that its processes have ended."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        traceback.clear_frames(error.__traceback__)
        gc.collect()


def _init(ray: Any, workers: int, scratch: str) -> None:
    ray.init(
        LOCAL,
        num_cpus=workers,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        logging_level="error",
        _temp_dir=scratch,
    )


def _reach(address: str) -> None:
    """Raise OSError at once where nothing listens at the address; Ray would try for many minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=10).close()


def _ray(environment: dict[str, str]) -> Any:
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ModuleNotFoundError as error:
        raise DistributionError(
            "several runs at once need Ray: `make install` in a clone, or `pip install '.[ray]'`"
        ) from error
    return ray
