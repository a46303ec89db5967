"""The cluster that a command talks to: the options that kubectl has, and policies as plain JSON objects."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rlscaler_operator.cluster.kube import Json, Kube
    from rlscaler_operator.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

FIELD_MANAGER = "rlscaler-cli"
"""Owner, in managedFields, of what people write with these commands; the operator itself is another owner."""

COMPLETION_SECONDS = 2.0
"""The longest time that the shell waits for the names of policies."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster and the namespace that a command is about."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    """The default is the namespace of the kubeconfig's context, and in a pod the pod's own."""


def cluster_options(command: F) -> F:
    """Give a command the options `--kubeconfig`, `--context` and `--namespace` as kubectl has them."""
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
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Kubeconfig of the cluster; default: $KUBECONFIG, ~/.kube/config, in a pod its service account.",
        ),
    ):
        command = option(command)
    return command


def policy_argument(command: F) -> F:
    """Give a command the argument NAME, which the shell completes from the cluster."""
    return click.argument("name", shell_complete=complete_names)(command)


def check_policy_name(policy: str | None) -> None:
    """Raise UsageError where `--policy` is given and does not name namespace and name."""
    if policy is not None and (policy.count("/") != 1 or not all(policy.split("/"))):
        raise click.UsageError(f"--policy {policy}: name it as NAMESPACE/NAME")


def _namespace_name(context: click.Context, parameter: click.Parameter, name: str | None) -> str | None:
    if name is not None and (len(name) > 63 or not re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)):
        raise click.BadParameter(
            f"{name!r} is no name of a namespace: use small letters, digits and -, at most 63", context, parameter
        )
    return name


@contextlib.contextmanager
def settings_errors() -> Iterator[None]:
    """Turn the errors of a `Settings` into a UsageError: one line, each with its option and its variable."""
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as error:
        troubles = []
        for one in error.errors():
            name = str(one["loc"][0]) if one["loc"] else ""
            where = f"{name} (RLSCALER_{name.upper()} in the environment)" if name else "settings"
            troubles.append(f"{where}: {one['msg']}")
        raise click.UsageError("; ".join(troubles)) from error


def within(target: Target, work: Callable[[Policies], Coroutine[Any, Any, T]], read_only: bool = False) -> T:
    """Run `work` with the policies of the target and return its result; with `read_only` nothing can be changed.

    Raises ClickException with what the API server says.
    """
    from rlscaler_operator.exceptions import OperatorError

    try:
        return asyncio.run(_within(target, work, read_only))
    except OperatorError as error:
        raise click.ClickException(f"{error}{_remedy(error)}") from error


def _remedy(error: BaseException | None) -> str:
    """Say what to do where the API server does not answer; empty = it did."""
    from aiohttp import ClientConnectionError

    while error is not None:
        if isinstance(error, ClientConnectionError | TimeoutError):
            return ": is this API server running? Name another one with --kubeconfig or --context"
        error = error.__cause__
    return ""


async def _within(target: Target, work: Callable[[Policies], Coroutine[Any, Any, T]], read_only: bool) -> T:
    from rlscaler_operator.cluster.kube import Kube, ReadOnly, load_configuration
    from rlscaler_operator.settings import Settings

    with settings_errors():
        settings = Settings(kubeconfig=target.kubeconfig) if target.kubeconfig else Settings()
    kind = ReadOnly if read_only else Kube
    kube = kind(await load_configuration(settings, target.context), timeout_seconds=30.0)
    try:
        return await work(Policies(kube, target.namespace or _namespace(target, settings.kubeconfig), settings))
    finally:
        await kube.close()


def _namespace(target: Target, kubeconfig: Path | None) -> str:
    """Return the namespace of the context that is used."""
    from kubernetes.aio.config import list_kube_config_contexts

    from rlscaler_operator.settings import own_namespace

    try:
        contexts, current = list_kube_config_contexts(None if kubeconfig is None else str(kubeconfig))
    except Exception:  # in a pod there is no kubeconfig, and nothing is wrong with that
        return own_namespace()
    named = {context["name"]: context for context in contexts}
    found = named.get(target.context or "", current) or {}
    return str((found.get("context") or {}).get("namespace") or own_namespace())


class Policies:
    """RLScalingPolicies of one cluster as the API server gives them. All methods raise OperatorError."""

    def __init__(self, kube: Kube, namespace: str, settings: Settings) -> None:
        self.kube, self.namespace, self.settings = kube, namespace, settings

    async def all(self, everywhere: bool) -> list[Json]:
        """Return the policies of the namespace, or of all namespaces, ordered by namespace and name."""
        from rlscaler_core.api import GROUP, PLURAL, VERSION
        from rlscaler_operator.cluster.kube import listed

        namespaces = [] if everywhere else [self.namespace]
        found = [body async for body in listed(self.kube, namespaces, f"{GROUP}/{VERSION}", PLURAL)]
        return sorted(found, key=lambda body: (body["metadata"]["namespace"], body["metadata"]["name"]))

    async def get(self, name: str) -> Json:
        """Return one policy of the namespace. The error for a wrong name lists the names that there are."""
        from rlscaler_operator.exceptions import KubeError, OperatorError

        try:
            return await self.kube.get(self._path(name))
        except KubeError as error:
            if error.status != 404:
                raise
            there = ", ".join(body["metadata"]["name"] for body in await self.all(False)) or "none"
            raise OperatorError(
                f"RLScalingPolicy {self.namespace}/{name} does not exist (there are: {there}): "
                "correct the name, or name its namespace with -n"
            ) from error

    async def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations; None removes one."""
        from rlscaler_operator.cluster.kube import MERGE_PATCH

        await self._patch(name, {"metadata": {"annotations": dict(annotations)}}, MERGE_PATCH)

    async def switch(self, body: Json, mode: str) -> None:
        """Set `spec.mode` if the spec is still the one that was read; writes of the status in between do no harm."""
        from rlscaler_operator.cluster.kube import JSON_PATCH
        from rlscaler_operator.exceptions import KubeError, OperatorError

        name, generation = body["metadata"]["name"], body["metadata"]["generation"]
        change = [
            {"op": "test", "path": "/metadata/generation", "value": generation},
            {"op": "add", "path": "/spec/mode", "value": mode},
        ]
        try:
            await self._patch(name, change, JSON_PATCH)
        except KubeError as error:
            if (await self.get(name))["metadata"]["generation"] == generation:
                raise
            raise OperatorError(
                f"the spec of {name} was changed by another client meanwhile: look at it again"
            ) from error

    async def _patch(self, name: str, change: Any, kind: str) -> None:
        await self.kube.request("PATCH", self._path(name), change, content_type=kind, fieldManager=FIELD_MANAGER)

    def _path(self, name: str) -> str:
        from rlscaler_core.api import GROUP, PLURAL, VERSION
        from rlscaler_operator.cluster.kube import object_path

        return object_path(f"{GROUP}/{VERSION}", PLURAL, self.namespace, name)


def complete_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of the policies that begin with `incomplete`; none where the cluster is slow or not there."""
    target = Target(*(ctx.params.get(name) for name in ("kubeconfig", "context", "namespace")))

    async def names(policies: Policies) -> list[str]:
        async with asyncio.timeout(COMPLETION_SECONDS):
            return [body["metadata"]["name"] for body in await policies.all(False)]

    try:
        return [name for name in within(target, names) if name.startswith(incomplete)]
    except (click.ClickException, TimeoutError, OSError):
        return []
