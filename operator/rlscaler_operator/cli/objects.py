"""RLScalingPolicies, and other objects, of one namespace as plain JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlscaler_core.api import GROUP, KIND, PLURAL, VERSION
from rlscaler_operator.cluster.kube import JSON_PATCH, MERGE_PATCH, Json, Kube, listed, object_path
from rlscaler_operator.exceptions import KubeError, OperatorError
from rlscaler_operator.settings import Settings

API_VERSION = f"{GROUP}/{VERSION}"

FIELD_MANAGER = "rlscaler-cli"
"""Owner, in managedFields, of the fields that a person writes with these commands; the operator is another owner."""


class Policies:
    """RLScalingPolicies, and other objects, of one namespace of a cluster. All methods raise OperatorError."""

    def __init__(self, kube: Kube, namespace: str, settings: Settings) -> None:
        self.kube, self.namespace, self.settings = kube, namespace, settings

    async def all(self, everywhere: bool) -> list[Json]:
        """Return the policies of the namespace, or of all namespaces, ordered by namespace and name."""
        namespaces = [] if everywhere else [self.namespace]
        bodies = [body async for body in listed(self.kube, namespaces, API_VERSION, PLURAL)]
        return sorted(bodies, key=lambda body: (body["metadata"]["namespace"], body["metadata"]["name"]))

    async def get(self, name: str) -> Json:
        """Return one policy. The error for a wrong name lists the names that exist."""
        return await self.find(KIND, API_VERSION, PLURAL, name, optional=False)

    async def find(self, kind: str, api_version: str, plural: str, name: str, optional: bool = True) -> Json:
        """Return one object of the namespace. The error for a wrong name lists the names that exist.

        With `optional` the API of the kind may be missing from the cluster.
        """
        try:
            return await self.kube.get(object_path(api_version, plural, self.namespace, name))
        except KubeError as error:
            if error.status != 404:
                raise
            bodies = listed(self.kube, [self.namespace], api_version, plural, optional=optional)
            names = sorted([body["metadata"]["name"] async for body in bodies])
            raise OperatorError(
                f"{kind} {self.namespace}/{name} does not exist (there are: {', '.join(names) or 'none'}): "
                "correct the name, or name its namespace with -n"
            ) from error

    async def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Set annotations of a policy; None removes one."""
        await self._patch(name, {"metadata": {"annotations": dict(annotations)}}, MERGE_PATCH)

    async def switch(self, body: Json, mode: str) -> None:
        """Set `spec.mode` if the spec has not changed since `body` was read; writes of the status do not matter."""
        name, generation = body["metadata"]["name"], body["metadata"]["generation"]
        # The generation changes with the spec alone, while the resourceVersion changes with every status as well.
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

    async def _patch(self, name: str, change: Any, content_type: str) -> None:
        path = object_path(API_VERSION, PLURAL, self.namespace, name)
        await self.kube.request("PATCH", path, change, content_type=content_type, fieldManager=FIELD_MANAGER)
