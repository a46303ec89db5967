"""Connection of a command to a cluster, with kubectl's options."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from rlscaler_core.options import PRESENT_FILE

if TYPE_CHECKING:
    from rlscaler_operator.cli.objects import Policies
    from rlscaler_operator.cluster.kube import Kube
    from rlscaler_operator.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

COMPLETION_SECONDS = 2.0
"""Longest time that the shell waits for the names of policies."""

TIMEOUT_SECONDS = 30.0
"""Longest wait for one answer of the API server. A person waits longer than the operator does."""


@dataclass(frozen=True, slots=True)
class Target:
    """Cluster and namespace that a command is about."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    """None means the namespace of the kubeconfig's context, and in a pod the pod's own."""


def cluster_options(command: F) -> F:
    """Add `--kubeconfig`, `--context` and `--namespace` as kubectl has them; the command receives them as `target`."""

    @functools.wraps(command)
    def with_target(
        *arguments: Any, kubeconfig: Path | None, context: str | None, namespace: str | None, **options: Any
    ) -> Any:
        return command(*arguments, target=Target(kubeconfig, context, namespace), **options)

    for option in (
        click.option(
            "-n",
            "--namespace",
            callback=_namespace_name,
            help="Namespace of the policy; default: that of the context.",
        ),
        click.option("--context", help="Context of the kubeconfig."),
        click.option(
            "--kubeconfig",
            type=PRESENT_FILE,
            help="Kubeconfig of the cluster; default: $KUBECONFIG, ~/.kube/config, in a pod its service account.",
        ),
    ):
        with_target = option(with_target)
    return cast(F, with_target)


def policy_argument(command: F) -> F:
    """Add the argument NAME, which the shell completes from the cluster."""
    return click.argument("name", shell_complete=complete_names)(command)


def log_options(prefix: str = "") -> Callable[[F], F]:
    """Add `--model` and `--policy`, the options of commands that read audit logs; `prefix` begins their help texts."""

    def decorate(command: F) -> F:
        command = click.option(
            "--policy",
            callback=_policy_name,
            help=f"{prefix}Only decisions of this policy, as NAMESPACE/NAME.",
        )(command)
        return model_option(prefix)(command)

    return decorate


def model_option(prefix: str = "") -> Callable[[F], F]:
    """Add `--model`, actors that can decide again."""
    return click.option(
        "--model",
        "models",
        multiple=True,
        type=click.Path(exists=True, path_type=Path),
        help=f"{prefix}ONNX file, folder or ConfigMap (YAML) of an actor that is not bundled (repeatable).",
    )


PROMETHEUS_URL = click.option(
    "--prometheus-url", help="Prometheus as it is reached from here, such as a forwarded port."
)


def _policy_name(context: click.Context, parameter: click.Parameter, policy: str | None) -> str | None:
    if policy is not None and (policy.count("/") != 1 or not all(policy.split("/"))):
        raise click.UsageError(f"--policy {policy}: name it as NAMESPACE/NAME")
    return policy


def _namespace_name(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    if name is not None and (len(name) > 63 or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)):
        raise click.BadParameter(
            f"{name!r} is no name of a namespace: use small letters, digits and -, at most 63", context, parameter
        )
    return name


@contextlib.contextmanager
def settings_errors() -> Iterator[None]:
    """Turn the errors of `Settings` into one UsageError that names each option and its environment variable."""
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as invalid:
        troubles = []
        for error in invalid.errors():
            name = str(error["loc"][0]) if error["loc"] else ""
            where = f"{name} (RLSCALER_{name.upper()} in the environment)" if name else "settings"
            troubles.append(f"{where}: {error['msg']}")
        raise click.UsageError("; ".join(troubles)) from invalid


def connected(
    make_settings: Callable[[], Settings],
    work: Callable[[Kube, Settings], Awaitable[T]],
    context: str | None = None,
    read_only: bool = False,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> T:
    """Run `work` with a client of the cluster and return its result; with `read_only` nothing can be changed.

    Raises ClickException with the message of the API server.
    """
    from rlscaler_operator.cluster.kube import Kube, ReadOnly, load_configuration
    from rlscaler_operator.exceptions import OperatorError

    async def run() -> T:
        with settings_errors():
            settings = make_settings()
        client = ReadOnly if read_only else Kube
        kube = client(await load_configuration(settings, context), timeout_seconds=timeout_seconds)
        try:
            return await work(kube, settings)
        finally:
            await kube.close()

    try:
        return asyncio.run(run())
    except OperatorError as error:
        raise click.ClickException(f"{error}{_remedy(error)}") from error


def within(target: Target, work: Callable[[Policies], Awaitable[T]], read_only: bool = False) -> T:
    """Run `work` with the policies of the target and return its result. Raises ClickException."""
    from rlscaler_operator.cli.objects import Policies
    from rlscaler_operator.settings import Settings

    def settings() -> Settings:
        return Settings(kubeconfig=target.kubeconfig) if target.kubeconfig else Settings()

    async def with_policies(kube: Kube, settings: Settings) -> T:
        return await work(Policies(kube, target.namespace or _namespace(target, settings.kubeconfig), settings))

    return connected(settings, with_policies, target.context, read_only)


def _remedy(error: BaseException | None) -> str:
    """Return the remedy for an API server that does not answer; empty where it answered."""
    from aiohttp import ClientConnectionError

    while error is not None:
        if isinstance(error, ClientConnectionError | TimeoutError):
            return ": is this API server running? Name another one with --kubeconfig or --context"
        error = error.__cause__
    return ""


def _namespace(target: Target, kubeconfig: Path | None) -> str:
    """Return the namespace of the context in use."""
    from kubernetes.aio.config import list_kube_config_contexts

    from rlscaler_operator.settings import own_namespace

    try:
        contexts, current = list_kube_config_contexts(None if kubeconfig is None else str(kubeconfig))
    except Exception:  # in a pod there is no kubeconfig, and nothing is wrong with that
        return own_namespace()
    by_name = {context["name"]: context for context in contexts}
    chosen = by_name.get(target.context or "", current) or {}
    return str((chosen.get("context") or {}).get("namespace") or own_namespace())


def complete_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of policies that begin with `incomplete`; none where the cluster is slow or unreachable."""
    target = Target(*(ctx.params.get(name) for name in ("kubeconfig", "context", "namespace")))

    async def names(policies: Policies) -> list[str]:
        async with asyncio.timeout(COMPLETION_SECONDS):
            return [body["metadata"]["name"] for body in await policies.all(False)]

    try:
        return [name for name in within(target, names) if name.startswith(incomplete)]
    except (click.ClickException, TimeoutError, OSError):
        return []
