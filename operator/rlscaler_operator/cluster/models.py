"""Trained networks of administrators and users: a manifest and the ONNX graph that it names by digest."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from rlscaler_core.decision.actor import Actor
from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.decision.graph import MOST_BYTES
from rlscaler_core.decision.limit import TimeLimit
from rlscaler_core.decision.manifest import Manifest
from rlscaler_operator.cluster.references import Name, Source
from rlscaler_operator.cluster.trial import try_out
from rlscaler_operator.exceptions import ModelUnavailableError

LOOK_AGAIN_SECONDS = 1.0
"""Shortest time between two looks at the times of a file, however many policies use it."""

MOST_RUN_SECONDS = 0.5
"""Longest time of one run of a model in a decision: ten times the limit of its trial."""

Stamp = tuple[object, ...]
"""Paths of a model's files with time, size and inode of each."""

_shared: WeakValueDictionary[str, Actor] = WeakValueDictionary()
"""Loaded actors by the digest of manifest and graph: policies with the same model share an actor and a batch."""


def load_model(manifest_text: str | bytes, graphs: Iterable[bytes], source: str) -> Actor:
    """Load the actor of a manifest, with the graph among `graphs` that has its digest, after a trial.

    It takes a second or more, so call it outside of the event loop. `source` names the origin in messages.
    Raises ModelUnavailableError.
    """
    try:
        manifest = Manifest.parse(manifest_text, source)
        if manifest.envelope is None:
            raise ModelError(
                f"{source}: states no envelope, so it is not known where it may act; export the actor again"
            )
        for graph in graphs:
            if hashlib.sha256(graph).hexdigest() == manifest.digest:
                return _share(manifest, graph, source)
    except ContractMismatchError as error:
        raise ModelUnavailableError(str(error), "ModelContractMismatch") from error
    except ModelError as error:
        raise ModelUnavailableError(str(error), "ModelInvalid") from error
    raise ModelUnavailableError(
        f"{source}: no graph beside it has the sha256 that it names ({manifest.digest or 'none'}): "
        "the two belong to different models or one is damaged; publish both again",
        "ModelDigestMismatch",
    )


def _share(manifest: Manifest, graph: bytes, source: str) -> Actor:
    key = hashlib.sha256(manifest.model_dump_json().encode()).hexdigest() + manifest.digest
    actor = _shared.get(key)
    if actor is None:
        try_out(manifest, graph, source)
        actor = _shared[key] = Actor.load(graph, manifest, TimeLimit(MOST_RUN_SECONDS))
    return actor


def from_config_map(name: Name, body: Mapping[str, Any]) -> Actor:
    """Load the manifest under `name.key` and the graph in `binaryData` beside it, as `rlscaler publish` writes them.

    Raises ModelUnavailableError.
    """
    source = f"ConfigMap {name.namespace}/{name.name}"
    data = body.get("data") or {}
    if name.key not in data:
        there = ", ".join(sorted(data)) or "none"
        raise ModelUnavailableError(
            f"{source} has no key {name.key!r} in data (there are: {there}): correct spec.policy.configMap.key",
            "ModelInvalid",
        )
    try:
        graphs = [base64.b64decode(text, validate=True) for text in (body.get("binaryData") or {}).values()]
    except binascii.Error as error:
        raise ModelUnavailableError(f"{source}: binaryData is not base64: {error}", "ModelInvalid") from error
    return load_model(data[name.key], graphs, f"{source}, key {name.key}")


CONFIG_MAPS = Source(
    kind="ConfigMap",
    plural="configmaps",
    load=from_config_map,
    keeps_last_good=True,
    error=ModelUnavailableError,
    remedy="create it with `rlscaler publish`, or correct spec.policy.configMap.name",
)


@dataclass(slots=True)
class ModelFile:
    """Manifest under the operator's `--policy-dir` with the ONNX files beside it, read again after a change."""

    folder: Path
    relative: str
    threads: Executor
    """Threads in which models are loaded and tried out, so that nothing else waits for them."""
    actor: Actor | None = None
    """The last actor that could be loaded."""
    error: ModelUnavailableError | None = None
    """Why the present files cannot be loaded; None = they can."""
    loading: Future[Actor] | None = None
    """Load under way, or one whose result was not taken yet."""
    _stamp: Stamp | None = None
    _looked_at: float = float("-inf")

    @property
    def pending(self) -> bool:
        """True while the model is loaded for the first time."""
        return self.actor is None and self.error is None

    def refresh(self) -> None:
        """Take the result of a load, and begin a new load where the files have changed. This never waits."""
        try:
            if self.loading is not None:
                if not self.loading.done():
                    return
                loading, self.loading = self.loading, None
                self.actor, self.error = loading.result(), None
            self._look()
        except ModelUnavailableError as error:
            self.error = error
        except OSError as error:
            self._stamp = None
            text = f"{self.folder / self.relative}: {error.strerror}: correct spec.policy.path, or copy the model there"
            self.error = ModelUnavailableError(text, "ModelMissing")

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_AGAIN_SECONDS:
            return
        self._looked_at = now
        path = self._resolved()
        stamp = tuple((str(file), stamp_of(file)) for file in (path, *_graphs(path)))
        if stamp != self._stamp:
            self._stamp = stamp
            self.loading = self.threads.submit(_load_files, path)

    def _resolved(self) -> Path:
        """Return the path of the manifest. Raises ModelUnavailableError where a link leads out of the folder."""
        folder, path = self.folder.resolve(), (self.folder / self.relative).resolve()
        if not path.is_relative_to(folder):
            text = f"spec.policy.path {self.relative} leads out of the operator's --policy-dir: copy the model into it"
            raise ModelUnavailableError(text, "ModelMissing")
        return path


def _load_files(path: Path) -> Actor:
    return load_model(_read(path), map(_read, _graphs(path)), str(path))


def _graphs(manifest: Path) -> list[Path]:
    return sorted(manifest.parent.glob("*.onnx"))


def _read(path: Path) -> bytes:
    if (size := path.stat().st_size) > MOST_BYTES:
        raise ModelUnavailableError(f"{path}: {size:,} bytes are more than a policy network has", "ModelInvalid")
    return path.read_bytes()


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Return modification time (ns), size (bytes) and inode of a file; None where it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
