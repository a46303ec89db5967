"""Kinds of targets besides Deployments: their API and their names.

An object of any kind with a scale subresource is read and written through it. The scale's selector selects its pods;
the watch of pods tells which of them are ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import kopf

from rlscaler_core.api.targets import reference
from rlscaler_operator.cluster.kube import object_path
from rlscaler_operator.exceptions import OperatorError

Key = tuple[str, str]


class TargetKind(NamedTuple):
    """Kind of objects that may be scaled."""

    api_version: str
    plural: str
    kind: str

    @classmethod
    def parse(cls, text: str) -> TargetKind:
        """Read `apps/v1/statefulsets/StatefulSet`. Raises OperatorError."""
        parts = text.split("/")
        if len(parts) not in (3, 4) or not all(parts):
            raise OperatorError(
                f"RLSCALER_TARGET_KINDS: {text!r} is not apiVersion/plural/Kind: "
                "write it as apps/v1/statefulsets/StatefulSet"
            )
        return cls("/".join(parts[:-2]), parts[-2], parts[-1])

    @property
    def prefix(self) -> str:
        """Prefix of the name in the reference of an object of this kind."""
        return reference(self.api_version, self.kind, "")

    @property
    def resource(self) -> kopf.Resource:
        group, _, version = self.api_version.rpartition("/")
        verbs = frozenset({"get", "list", "watch"})
        return kopf.Resource(group, version, self.plural, kind=self.kind, namespaced=True, verbs=verbs)

    def key(self, body: Mapping[str, Any]) -> Key:
        """Return the namespace and the reference of an object of this kind."""
        metadata = body["metadata"]
        return metadata.get("namespace", ""), self.prefix + metadata["name"]

    def path(self, key: Key) -> str:
        return object_path(self.api_version, self.plural, key[0], key[1].removeprefix(self.prefix))


DEPLOYMENTS = TargetKind("apps/v1", "deployments", "Deployment")


class TargetKinds:
    """Kinds that the administrator has enabled besides Deployments."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        """`texts` are as in the setting `target_kinds`. Raises OperatorError."""
        self.others = tuple(kind for text in texts if (kind := TargetKind.parse(text)) != DEPLOYMENTS)

    def of(self, target: str) -> TargetKind | None:
        """Return the kind of a target by its reference; None where it is not enabled."""
        if "/" not in target:
            return DEPLOYMENTS
        prefix = target[: target.index("/") + 1]
        return next((kind for kind in self.others if kind.prefix == prefix), None)

    def path(self, key: Key) -> str:
        """Return the path of a target. Raises KeyError where its kind is not enabled."""
        kind = self.of(key[1])
        if kind is None:
            raise KeyError(key[1])
        return kind.path(key)


def is_other(target: str) -> bool:
    """Return True where a reference is not that of a Deployment."""
    return "/" in target


def titled(target: str) -> str:
    """Return a target as it stands in a message."""
    return target if is_other(target) else f"Deployment {target}"


def for_kubectl(target: str) -> str:
    """Return a target as an argument of kubectl."""
    return target if is_other(target) else f"deployment/{target}"
