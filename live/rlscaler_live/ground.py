"""The cluster of live episodes: the one that the configuration names, or one that is started for them.

The starter of a cluster is found through the entry point group `rlscaler.testbeds`: it is no part of the product.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import FrameType
from typing import Any

from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import rule_of
from rlscaler_live.environment import KubernetesEnv
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.settings import parts_of
from rlscaler_rl.training.config import EnvironmentConfig

TESTBEDS = "rlscaler.testbeds"

SHARED = frozenset(
    {
        *("namespace", "prometheus_url", "locust_url", "episode_duration", "action_interval", "min_replicas"),
        *("max_replicas", "objective"),
    }
)
"""Fields of a configuration file that mean the same to a simulation and to a cluster."""

OF_A_CLUSTER = frozenset({"namespace", "prometheus_url", "locust_url", "kubeconfig", "service", "gpu", "cpu"})
"""A file that sets any of these describes a cluster of the user's; otherwise one is started."""

Json = dict[str, Any]
Say = Callable[[str], None]


def read_parts(path: Path | None) -> tuple[Json, Json, Json]:
    """(fields for the live environment, for training alone, the agent's) of a configuration file.

    Raises EvaluationError.
    """
    environment, agent = parts_of(path)
    simulated = set(EnvironmentConfig.model_fields) - SHARED
    live = {name: value for name, value in environment.items() if name not in simulated}
    return live, {name: value for name, value in environment.items() if name in simulated}, agent


@contextmanager
def ground(live: Mapping[str, Any], folder: Path, seed: int, say: Say) -> Iterator[Json]:
    """Yield the live environment's configuration, with a cluster, a service and a load source behind it.

    Where `live` names none, all of it is started for as long as the context lasts; its logs go to `folder`/live.
    SIGTERM and SIGHUP end the program in order meanwhile: replicas are restored, and a cluster that was started stops.
    Raises EvaluationError, or a ClickException of the starter.
    """
    with _ended_in_order(), _place(live, folder, seed, say) as place:
        yield place


@contextmanager
def _place(live: Mapping[str, Any], folder: Path, seed: int, say: Say) -> Iterator[Json]:
    if OF_A_CLUSTER & {name for name, value in live.items() if value is not None}:
        yield {"results": str((folder / "live" / "load").absolute()), **live}
        return
    testbed = _testbed()
    given = {name: value for name, value in live.items() if value is not None}
    with testbed(folder / "live", seed=seed, say=say) as started:
        yield started | given


@contextmanager
def _ended_in_order() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_env(config: Mapping[str, Any], manifest: Manifest) -> Any:
    """A live environment for an actor with this manifest: same stack, same mode. Raises a ClickException."""
    return KubernetesEnv(config, contract=manifest.contract, rule=rule_of(manifest))


def _testbed() -> Callable[..., Any]:
    remedy = "install the development tools (make install), or name a cluster in --config"
    points = list(entry_points(group=TESTBEDS, name="local"))
    if not points:
        raise EvaluationError(f"--env cluster: nothing is installed that starts a cluster; {remedy}")
    try:
        loaded: Callable[..., Any] = points[0].load()
    except ModuleNotFoundError as error:
        raise EvaluationError(f"--env cluster needs the package '{error.name}': {remedy}") from error
    return loaded
