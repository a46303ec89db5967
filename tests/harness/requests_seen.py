"""What requests to an API server amount to in the words of RBAC."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.harness.proxy import Request

_OBJECTS = re.compile(
    r"/api(?:s/(?P<group>[^/]+))?/(?P<version>v[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[a-z]+))?$"
)

OPEN = re.compile(r"/(version|api|apis|api/v1|apis/[^/]+(/v[^/]+)?)/?$")
"""Discovery: open to every account by the API server's own role system:discovery."""

VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Use(NamedTuple):
    """One verb on one resource."""

    group: str
    resource: str
    """Plural name with its subresource, as in `deployments/scale`."""
    verb: str


class Seen(NamedTuple):
    """A use, and where."""

    use: Use
    namespace: str | None
    name: str | None


def seen(requests: Iterable[Request]) -> list[Seen]:
    """All requests but discovery. Raises ValueError for a path that is neither."""
    found = []
    for request in requests:
        if OPEN.match(request.path):
            continue
        parts = _OBJECTS.match(request.path)
        if parts is None:
            raise ValueError(f"{request.method} {request.path} is no request for an object")
        resource = "/".join(part for part in (parts["plural"], parts["subresource"]) if part)
        reading = "watch" if request.watches else "get" if parts["name"] else "list"
        use = Use(parts["group"] or "", resource, VERBS.get(request.method, reading))
        found.append(Seen(use, parts["namespace"], parts["name"]))
    return found


def granted(rules: Iterable[dict[str, Any]]) -> set[Use]:
    """What rules allow."""
    return {
        Use(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
