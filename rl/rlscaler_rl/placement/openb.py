"""Alibaba's openb: the nodes and pods of a production cluster with shared GPUs, from files that do not ship.

`cluster-trace-gpu-v2023` of https://github.com/alibaba/clusterdata. `rlscaler scheduler openb make` checks the files
against digests and puts them into a folder of the user's.
"""

from __future__ import annotations

import csv
import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlscaler_core.placement.types import MOST_GPUS, WHOLE_GPU, Float, Nodes, Pods, empty_nodes
from rlscaler_rl.workloads.library import data_home

SOURCE = (
    "https://github.com/alibaba/clusterdata/tree/7a6c496e4f4b6ce6150be8f881cb051bf2abff42/cluster-trace-gpu-v2023/csv"
)

DIGESTS = {
    "openb_node_list_gpu_node.csv": "2beca64b4d3dfa342036a34b56a495c6cef9225db836c81f541282cb1df320b5",
    "openb_node_list_all_node.csv": "5a85c2af79c66a1efff8bbcbda430400aae56d8431370d738480967e1a9c6b15",
    "openb_pod_list_default.csv": "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
    "openb_pod_list_cpu0.csv": "1bc3fd9ee5c1468ccd018f624d9222746e08d59f963f66b925804734271c0eaa",
    "openb_pod_list_cpu037.csv": "8ed554026d041b15ff21ddc104d9a21dbd9a93c496262fa23ef7b5be27e220dc",
    "openb_pod_list_cpu050.csv": "747f43247bffc2b0bb081d7f61f0705ca8d390dafc0b647e642c92f3baf3ba1e",
    "openb_pod_list_cpu072.csv": "f8a2b031461b54d7b9f06d55473c2371eb3357b78a255c646bdca5e0833a8a2f",
    "openb_pod_list_cpu100.csv": "bec1c33fbdde61fd463877534ec79b393aec73e1cbb22d55fab9f166ac480982",
    "openb_pod_list_cpu200.csv": "b7e9d8a1a601da84d6e0b4110b19ef5001be5e4796d33e7b82f166ba95161f87",
    "openb_pod_list_cpu235.csv": "87bebd4d012faa8305ce1fd82737f51cf03361aac28b75d42e34aa656d7f4ee0",
    "openb_pod_list_cpu250.csv": "134c21ff96d57533df8a37b67632972884fec9396e77cd0898ddc370cc8e607d",
    "openb_pod_list_cpu300.csv": "76528825f40ee662cb098b3b6e683c1efd9f87a0c8af7e628df1f32c639636d1",
    "openb_pod_list_gpushare20.csv": "9be2d0efb52e242c32e23dd184cc5fcc1983478c6c9c02cbb6b4b62925c0ffcd",
    "openb_pod_list_gpushare40.csv": "d83ce79a4eb6987524bedbb0c65e41aed3a36bf6c1b78b86234c3687a07e1d40",
    "openb_pod_list_gpushare60.csv": "d31809628128a1f24491086eda4af3e23882b9213d3ef57a56ee2d1af69492fe",
    "openb_pod_list_gpushare80.csv": "88b6649369ced40d0fde287d2498ea61ff4b05fccba8bdc95daf6042f2f8431e",
    "openb_pod_list_gpushare100.csv": "12dbc07d6a49bf8641e2275a2ff5bf7be74b5df7d148d531e135b140b95f9a3d",
    "openb_pod_list_gpuspec05.csv": "8f1c0ef7e4e511e982bd2818898ba22ee6d273bf5fce124b7ace285b5928cf4e",
    "openb_pod_list_gpuspec10.csv": "2dc7e4cb9480484f08539720b433a9ec9ab5d76b396f3f7557c53a2ff78a7611",
    "openb_pod_list_gpuspec20.csv": "6b9b89ab8913c1c074e994e98f548cf1a872fc5f76f2442ca8cd514a478b00a9",
    "openb_pod_list_gpuspec25.csv": "9d030679a2ccd7e27a7ec9ff15baff34480d22a0012515691fc187e3f35ee68c",
    "openb_pod_list_gpuspec33.csv": "eca4f746db1e5b25864ad021b55ece3943e101a3ebd4574d09dcb95c46117652",
    "openb_pod_list_multigpu20.csv": "d9ec6f6c74fb980cc0b81239470c6353fceea077ea9abd610003b604c7cc2b01",
    "openb_pod_list_multigpu30.csv": "a5e479c6444b1d83eef848159cf00c3cfa13441b2d1e2c113c391b91f1cc5b11",
    "openb_pod_list_multigpu40.csv": "32c9e8731ca07ef96108aa65f2a289bb9aacb47f642ed9e3789f99b242df60eb",
    "openb_pod_list_multigpu50.csv": "206f2f5959db30ecb7c44e7f13197c8ec50b7a35558ad3777cc3662ef0fe5373",
}
"""SHA-256 of the published files."""

NODE_LIST, POD_LIST = "openb_node_list_gpu_node.csv", "openb_pod_list_default.csv"
POD_LISTS = {
    name.removeprefix("openb_pod_list_").removesuffix(".csv"): name for name in DIGESTS if "_pod_list_" in name
}
"""The published lists of pods by their peculiarity: the trace is `default`, the others are made of it."""

ALL_NODES = "openb_node_list_all_node.csv"
"""The 1,213 nodes with GPUs and 310 without."""

VARIABLE = "RLSCALER_OPENB"
"""Variable of the environment that names another folder."""


class OpenbError(Exception):
    """Raised for a missing file, or for another one; the message names the remedy."""


class Cluster(NamedTuple):
    """The trace."""

    nodes: Nodes
    """N nodes, empty."""
    pods: Pods
    """P pods in the order in which they were created."""


def folder_of(folder: Path | None = None) -> Path:
    """Where the files are: `folder`, else $RLSCALER_OPENB, else ~/.local/share/rlscaler/openb."""
    return folder or data_home(VARIABLE, "openb")


def make(originals: Iterable[Path], folder: Path | None = None) -> list[Path]:
    """Check files of the published folder and copy them; where they went. Raises OpenbError."""
    target = folder_of(folder)
    copies = []
    for path in originals:
        _check(path)
        target.mkdir(parents=True, exist_ok=True)
        copies.append(target / path.name)
        shutil.copyfile(path, copies[-1])
    return copies


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


def task_list(folder: Path | None = None) -> tuple[Float, Float]:
    """Return cores and GiB (P, 2) of each pod, and the seconds (P,) for which it ran, in the order of their creation.

    Raises OpenbError.
    """
    rows = _rows(folder_of(folder) / POD_LIST)
    requests = np.stack([_column(rows, "cpu_milli") / 1000, _column(rows, "memory_mib") / 1024], -1)
    return requests, _column(rows, "deletion_time") - _column(rows, "creation_time")


def inflated(pods: Pods, gpus: float, ratio: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Indices of pods that together ask for `ratio` of the GPUs: all of them and some again, shuffled, as published."""
    requested = pods.gpus * pods.gpu_milli
    total = requested.sum()
    more: list[int] = []
    while True:
        index = int(rng.integers(len(requested)))
        if total + requested[index] > ratio * gpus * WHOLE_GPU:
            return rng.permutation(np.array([*range(len(requested)), *more], np.int64))
        total += requested[index]
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
