"""Alibaba's openb: the nodes and pods of a production cluster with shared GPUs, from files that do not ship.

`cluster-trace-gpu-v2023` of https://github.com/alibaba/clusterdata. `rlscaler scheduler openb make` checks the files
against digests and puts them into a folder of the user's.
"""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.placement.types import MOST_GPUS, WHOLE_GPU, Float, Nodes, Pods, empty_nodes

SOURCE = (
    "https://github.com/alibaba/clusterdata/tree/7a6c496e4f4b6ce6150be8f881cb051bf2abff42/cluster-trace-gpu-v2023/csv"
)

DIGESTS = {
    "openb_node_list_gpu_node.csv": "2beca64b4d3dfa342036a34b56a495c6cef9225db836c81f541282cb1df320b5",
    "openb_node_list_all_node.csv": "5a85c2af79c66a1efff8bbcbda430400aae56d8431370d738480967e1a9c6b15",
    "openb_pod_list_default.csv": "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
    "openb_pod_list_multigpu50.csv": "206f2f5959db30ecb7c44e7f13197c8ec50b7a35558ad3777cc3662ef0fe5373",
}
"""SHA-256 of the files that are used."""

NODE_LIST, POD_LIST = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
ALL_NODES = "openb_node_list_all_node.csv"
"""The 1,213 nodes with GPUs and 310 without."""

VARIABLE = "RLSCALER_OPENB"
"""Variable of the environment that names another folder."""


class OpenbError(Exception):
    """A file is missing or is another one; the message says what to do."""


class Cluster(NamedTuple):
    """The trace."""

    nodes: Nodes
    """N nodes, empty."""
    pods: Pods
    """P pods in the order in which they were created."""


def folder_of(folder: Path | None = None) -> Path:
    """Where the files are: `folder`, else $RLSCALER_OPENB, else ~/.local/share/rlscaler/openb."""
    if folder is not None:
        return folder
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "rlscaler" / "openb"


def make(originals: Iterable[Path], folder: Path | None = None) -> list[Path]:
    """Check files of the published folder and copy them; where they went. Raises OpenbError."""
    target = folder_of(folder)
    made = []
    for path in originals:
        _check(path)
        target.mkdir(parents=True, exist_ok=True)
        made.append(target / path.name)
        shutil.copyfile(path, made[-1])
    return made


def load(pod_list: str = POD_LIST, folder: Path | None = None, node_list: str = NODE_LIST) -> Cluster:
    """Read nodes and pods. Raises OpenbError that says how the files are made."""
    base = folder_of(folder)
    node_rows, pod_rows = (_rows(base / name) for name in (node_list, pod_list))
    models = sorted({row["model"] for row in node_rows if row["model"]})
    gpus = _column(node_rows, "gpu")
    if gpus.max() > MOST_GPUS:
        raise OpenbError(f"{base / node_list}: a node has {gpus.max():g} GPUs, more than {MOST_GPUS}")
    nodes = empty_nodes(
        np.stack([_column(node_rows, "cpu_milli"), _column(node_rows, "memory_mib")], -1),
        gpus=gpus,
        gpu_model=np.array([1 << models.index(row["model"]) if row["model"] else 0 for row in node_rows], np.int64),
        pod_limit=np.inf,
    )
    count = _column(pod_rows, "num_gpu")
    specified = [row.get("gpu_spec") or "" for row in pod_rows]
    nothing = np.full(len(pod_rows), np.nan)
    pods = Pods(
        np.stack([_column(pod_rows, "cpu_milli"), _column(pod_rows, "memory_mib")], -1),
        count,
        np.where(count > 0, _column(pod_rows, "gpu_milli"), 0.0),
        np.array([sum(1 << models.index(m) for m in text.split("|") if m in models) for text in specified], np.int64),
        nothing,
        nothing,
        nothing,
    )
    return Cluster(nodes, pods)


def inflated(pods: Pods, gpus: float, ratio: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Indices of pods that together ask for `ratio` of the GPUs: all of them and some again, shuffled, as published."""
    asked = pods.gpus * pods.gpu_milli
    total = asked.sum()
    more: list[int] = []
    while True:
        index = int(rng.integers(len(asked)))
        if total + asked[index] > ratio * gpus * WHOLE_GPU:
            return rng.permutation(np.array([*range(len(asked)), *more], np.int64))
        total += asked[index]
        more.append(index)


def _check(path: Path) -> None:
    expected = DIGESTS.get(path.name)
    if expected is None:
        raise OpenbError(f"{path}: none of {', '.join(DIGESTS)}; they are in {SOURCE}")
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise OpenbError(f"{path}: {error.strerror}; download it from {SOURCE}") from error
    if digest != expected:
        raise OpenbError(f"{path}: sha256 is {digest}, not {expected}; download it again from {SOURCE}")


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise OpenbError(
            f"{path}: is not there; download it from {SOURCE}, then `rlscaler scheduler openb make {path.name}`"
        )
    _check(path)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _column(rows: list[dict[str, str]], name: str) -> Float:
    return np.array([float(row[name] or 0) for row in rows])
