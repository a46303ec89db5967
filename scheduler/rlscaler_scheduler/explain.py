"""Why a pod was suggested its node: the newest record of it, from decision logs or from the server, and its page."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import requests
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlscaler_scheduler.replay import nodes_of
from rlscaler_scheduler.suggest import decided_by, seen

TIMEOUT_SECONDS = 5.0

NAMES = {
    "requested_cpu": "CPU",
    "requested_memory": "memory",
    "pods": "pods",
    "free_gpus": "free GPUs",
    "latency_ms": "latency ms",
}
"""Headings of the properties of a node, by their names in records."""

MEASURED = {
    "cpu": "CPU used",
    "memory": "memory used",
    "disk": "disk used",
    "network_bytes_per_s": "network B/s",
    "tcp_connections": "TCP",
    "running_pods": "running pods",
    "age_seconds": "age s",
}
"""Headings of node metrics."""

SHARES = ("requested_cpu", "requested_memory", "cpu", "memory", "disk")

ASKED = {"policy": "policy", "latency_soft_ms": "soft latency", "latency_hard_ms": "hard latency"}
"""Headings of a pod's wishes, by their names in records."""

Record = Mapping[str, Any]


class NotFoundError(Exception):
    """There is no record of the pod; the message says where it was looked for."""


def newest(lines: Iterable[str], namespace: str, pod: str) -> Record | None:
    """Return a decision log's last record of a pod, or None; lines that are cut off are skipped."""
    newest_record: Record | None = None
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and (record.get("namespace"), record.get("pod")) == (namespace, pod):
            newest_record = record
    return newest_record


def ask(url: str, namespace: str, pod: str, credentials: Path | None = None) -> Record:
    """Return the record of a pod from the server: its suggestion, or the present one of a pending pod.

    :param credentials: folder with token, ca.crt, tls.crt and tls.key, as far as the server asks for them.
    :raises NotFoundError: the server does not know the pod, or does not answer.
    """
    address = f"{url.rstrip('/')}/suggestions?{urlencode({'namespace': namespace, 'pod': pod})}"
    try:
        answer = requests.get(address, timeout=TIMEOUT_SECONDS, **_credentials(credentials))
        told = answer.json()
    except (OSError, ValueError) as error:
        raise NotFoundError(
            f"{url} is no suggestion server that answers ({error}): forward its port, or name its log by --decision-log"
        ) from error
    if not answer.ok:
        raise NotFoundError(str(told.get("error", answer.reason)))
    return dict(told)


def _credentials(folder: Path | None) -> dict[str, Any]:
    """Options of requests for the files in a folder."""
    if folder is None:
        return {}
    files = {name: folder / name for name in ("token", "ca.crt", "tls.crt", "tls.key") if (folder / name).is_file()}
    options: dict[str, Any] = {"verify": str(files["ca.crt"])} if "ca.crt" in files else {}
    if "tls.crt" in files:
        options["cert"] = (str(files["tls.crt"]), str(files.get("tls.key", files["tls.crt"])))
    if "token" in files:
        options["headers"] = {"Authorization": f"Bearer {files['token'].read_text(encoding='utf-8').strip()}"}
    return options


def page(record: Record) -> RenderableType:
    """Lay out a record: the choice, the deciding rule or network, and the best nodes with their properties."""
    by = decided_by(record["by"], record["rule"])
    when = f", {datetime.fromtimestamp(record['time'], UTC):%Y-%m-%d %H:%M:%S} UTC" if "time" in record else ", now"
    parts: list[RenderableType] = [
        Text.assemble((f"{record['namespace']}/{record['pod']}", "bold"), " → ", (record["node"] or "no node", "bold")),
        Text(f"{record['policy']} by {by}, of {record['nodes']} nodes that it fits{when}", "dim"),
    ]
    if wishes := [f"{ASKED[name]}: {who}" for name, who in record.get("asked_by", {}).items()]:
        parts.append(Text("; ".join(wishes), "dim"))
    if record["best"]:
        parts += ["", _table(record)]
    parts += [Text(f"! {problem}", "yellow") for problem in record["problems"]]
    return Group(*parts)


def _table(record: Record) -> Table:
    like = _like(record)
    columns = [name for name in NAMES if any(name in properties for properties in like.values())]
    metrics = [name for name in MEASURED if any(name in best.get("metrics", {}) for best in record["best"])]
    caption = "as they were before the pod came; CPU and memory: share that is requested"
    table = Table(box=box.SIMPLE, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("node")
    for heading in ("score", *(NAMES[name] for name in columns), *(MEASURED[name] for name in metrics)):
        table.add_column(heading, justify="right")
    for best in record["best"]:
        figures = like.get(best["node"], {})
        score = "" if best["score"] is None else f"{best['score']:g}"
        measured = best.get("metrics", {})
        cells = [*(_figure(name, figures.get(name)) for name in columns)]
        table.add_row(best["node"], score, *cells, *(_figure(name, measured.get(name)) for name in metrics))
    return table


def _like(record: Record) -> dict[str, dict[str, float]]:
    """Properties of nodes before the pod came: of the chosen node, and of all where the record has its inputs."""
    properties = {record["node"]: dict(record["seen"])}
    try:
        names, nodes = nodes_of(record["inputs"])
    except (KeyError, TypeError, ValueError, zlib.error):
        return properties
    where = {name: index for index, name in enumerate(names.tolist())}
    return properties | {
        best["node"]: seen(nodes.one(where[best["node"]])) for best in record["best"] if best["node"] in where
    }


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0%}" if name in SHARES else f"{value:g}"
