"""Actors that can take a recorded decision again, identified by the digests in the record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from rlscaler_core.decision.actor import Actor, ActorLike
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.observation import CONTRACT_VERSION
from rlscaler_core.models import BUNDLED_POLICIES, STREAMS, load_bundled
from rlscaler_operator.cluster.models import from_config_map
from rlscaler_operator.cluster.references import Name
from rlscaler_operator.exceptions import ModelUnavailableError, RecordError
from rlscaler_operator.records.record import describe

_NAMED_BY = ("digest", "manifest")


class AvailableActors:
    """The bundled actors, and the actors of files named by the user."""

    def __init__(self, models: Iterable[Path] = ()) -> None:
        """`models` are ONNX files with their manifest (.json) beside them, folders of such, or ConfigMaps in YAML.

        Raises RecordError.
        """
        self._actors: list[ActorLike] = [actor for path in models for actor in _load(path)]
        for name in (*BUNDLED_POLICIES, STREAMS):
            try:
                self._actors.append(load_bundled(name))
            except ModelError:
                continue

    def find(self, actor: Mapping[str, str]) -> ActorLike | None:
        """Return the recorded actor; None where no actor ran. Raises RecordError where it is not available."""
        if not actor:
            return None
        for candidate in self._actors:
            description = describe(candidate)
            if all(description[part] == actor.get(part) for part in _NAMED_BY):
                return candidate
        raise RecordError(self._missing(actor))

    def _missing(self, actor: Mapping[str, str]) -> str:
        name, digest = actor.get("name"), actor.get("digest", "")
        if (contract := actor.get("contract")) not in (None, CONTRACT_VERSION):
            return (
                f"actor {name!r} ({digest[:12]}) is of the contract {contract} and this release reads "
                f"{CONTRACT_VERSION}: replay it with `rlscaler replay` of the release that wrote it"
            )
        if any(candidate.manifest.digest == digest for candidate in self._actors):
            return f"actor {name!r} ({digest[:12]}) is there with another manifest: name the right one with --model"
        return f"actor {name!r} with sha256 {digest[:12]}… is not there: name its ONNX file or folder with --model"


def _load(path: Path) -> list[Actor]:
    try:
        in_yaml = path.suffix in (".yaml", ".yml")
        actors = list(_from_config_maps(path) if in_yaml else _from_files(path))
    except (ModelError, ModelUnavailableError) as error:
        raise RecordError(str(error)) from error
    if not actors and in_yaml:
        raise RecordError(f"{path}: no ConfigMap in it has a manifest; name a file that `rlscaler publish` wrote")
    if not actors:
        raise RecordError(f"{path}: no .onnx file there has a manifest (.json) beside it; name a model or its folder")
    return actors


def _from_files(path: Path) -> Iterator[Actor]:
    """Yield the actors at `path`. File names do not matter: a manifest names its network by digest."""
    folder = path if path.is_dir() else path.parent
    graphs = {hashlib.sha256(file.read_bytes()).hexdigest(): file for file in folder.glob("*.onnx")}
    for file in sorted(folder.glob("*.json")):
        try:
            manifest = Manifest.load(file)
        except ModelError:
            continue
        graph = graphs.get(manifest.digest)
        if graph is not None and path in (folder, graph):
            yield Actor.load(graph, manifest)


def _from_config_maps(path: Path) -> Iterator[Actor]:
    """Yield the actor of each manifest in a file that `rlscaler publish` or `kubectl get configmap -o yaml` wrote."""
    try:
        bodies = [body for body in yaml.safe_load_all(path.read_text()) if isinstance(body, dict)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise RecordError(f"{path}: {error}") from error
    for body in bodies:
        metadata = body.get("metadata") or {}
        for key in body.get("data") or {}:
            yield from_config_map(Name(metadata.get("namespace", "default"), metadata.get("name", ""), key), body)
