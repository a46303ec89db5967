"""Ranges of the operator's series of one policy, through the user's own reach.

The user's kubeconfig reaches a Prometheus that is a Service through the API server, as `kubectl get --raw` does; any
other address has to be in `--prometheus-url`: an author of a policy must not choose where the user's requests go.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import aiohttp

from rlscaler_operator.cluster.kube import Kube
from rlscaler_operator.exceptions import KubeError, MetricsError

SECONDS = 15.0
MOST_BYTES = 16 * 2**20

SERIES = ("rlscaler_signal", "rlscaler_replicas", "rlscaler_slo_requests_total", "rlscaler_slo_late_requests_total")

LABELS = ("signal", "pool", "state")
"""Labels that tell the series of a policy apart; those of the operator's pod do not."""

_HOST = re.compile(r"(?P<name>[a-z0-9][-a-z0-9]*)(\.(?P<namespace>[a-z0-9][-a-z0-9]*)(\.svc(\.[-a-z0-9.]+)?)?)?$")
_PATH = re.compile(r"(/[-A-Za-z0-9_]+)*/?$")

NAME_IT = "forward a port to it and name it with --prometheus-url"

Columns = dict[tuple[str, ...], dict[float, float]]
"""Values by time, by the name and the labels of a series."""


class Window(NamedTuple):
    """A range of Unix seconds."""

    start: float
    end: float
    step: float


class Reach:
    """The Prometheus of a policy, as it is reached from here."""

    def __init__(self, kube: Kube, url: str | None) -> None:
        """`url` is asked for every policy; None: the Prometheus that the policy names."""
        self._kube, self._url = kube, url

    async def series(self, body: Mapping[str, Any], window: Window) -> Columns:
        """Return the operator's series of a policy. Raises MetricsError with the cause."""
        metadata = body["metadata"]
        names = json.dumps(metadata["namespace"]), json.dumps(metadata["name"])
        chosen = f'{{__name__=~"{"|".join(SERIES)}",namespace={names[0]},policy={names[1]}}}'
        query = {
            "query": f"max by (__name__,{','.join(LABELS)}) ({chosen})",
            "start": f"{window.start:.3f}",
            "end": f"{window.end:.3f}",
            "step": f"{window.step:.3f}",
        }
        answer = await (self._through_api_server(body, query) if self._url is None else self._directly(query))
        return _columns(answer)

    async def _directly(self, query: Mapping[str, str]) -> Any:
        assert self._url is not None
        url, timeout = self._url.rstrip("/") + "/api/v1/query_range", aiohttp.ClientTimeout(SECONDS)
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, params=query) as response:
                text = await response.content.read(MOST_BYTES)
            return json.loads(text)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise MetricsError(
                f"Prometheus does not answer at {self._url} ({reason}): correct --prometheus-url"
            ) from error

    async def _through_api_server(self, body: Mapping[str, Any], query: Mapping[str, str]) -> Any:
        named = ((body.get("spec") or {}).get("metrics") or {}).get("prometheus") or {}
        url = named.get("url")
        if not url:
            raise MetricsError(f"the policy names no Prometheus, and that of the operator is not known here: {NAME_IT}")
        if named.get("auth"):
            raise MetricsError(f"{url} asks for credentials of a Secret, which this page does not read: {NAME_IT}")
        path = proxied(url, body["metadata"]["namespace"])
        try:
            return await self._kube.request("GET", f"{path}/api/v1/query_range", timeout_seconds=SECONDS, **query)
        except KubeError as error:
            raise MetricsError(f"{url} is not reached through the API server ({error}): {NAME_IT}") from error


def proxied(url: str, namespace: str) -> str:
    """Return the path of a Service's URL below the API server. Raises MetricsError where it names no Service."""
    try:
        parts = urlsplit(url)
        host, port = _HOST.match(parts.hostname or ""), parts.port
    except ValueError:
        host, port = None, None
        parts = urlsplit("")
    secure = parts.scheme == "https"
    if host is None or parts.scheme not in ("http", "https") or parts.query or not _PATH.match(parts.path):
        raise MetricsError(f"{url} is no Service that the API server reaches: {NAME_IT}")
    service = f"{'https:' if secure else ''}{host['name']}:{port or (443 if secure else 80)}"
    space = host["namespace"] or namespace
    return f"/api/v1/namespaces/{quote(space)}/services/{service}/proxy{parts.path.rstrip('/')}"


def _columns(answer: Any) -> Columns:
    columns: Columns = {}
    try:
        if answer["status"] != "success":
            raise MetricsError(f"Prometheus refuses the query: {str(answer.get('error'))[:200]}")
        for series in answer["data"]["result"]:
            labels = series["metric"]
            key = (labels["__name__"], *(labels[name] for name in LABELS if name in labels))
            values = ((float(time), float(value)) for time, value in series["values"])
            columns[key] = {time: value for time, value in values if math.isfinite(value)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MetricsError("the answer is not that of a Prometheus: correct --prometheus-url") from error
    if not columns:
        raise MetricsError("Prometheus has no series rlscaler_* of this policy: let it scrape the operator")
    return columns
