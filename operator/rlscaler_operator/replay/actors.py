"""Finding the actor that took a decision: by the digests in the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from rlscaler_operator.exceptions import RecordError
from rlscaler_operator.reporting.record import describe
from rlscaler_rl.decision import bundled
from rlscaler_rl.decision.actor import Actor, ActorLike
from rlscaler_rl.decision.exceptions import ModelError
from rlscaler_rl.decision.manifest import Manifest

_NAMED_BY = ("digest", "manifest")


class Shelf:
    """The bundled actors, and those in the files that the user names."""

    def __init__(self, models: Iterable[Path] = ()) -> None:
        """`models` are ONNX files with their manifest (.json) beside them, or folders of such. Raises RecordError."""
        self._actors: list[ActorLike] = []
        for path in models:
            files = sorted(path.glob("*.onnx")) if path.is_dir() else [path]
            if not files:
                raise RecordError(f"{path}: holds no .onnx file; name a model or the folder that it is in")
            self._actors += [_load(file) for file in files]
        for name in bundled.NAMES:
            try:
                self._actors.append(bundled.load(name))
            except ModelError:
                continue

    def find(self, actor: Mapping[str, str]) -> ActorLike | None:
        """None where no actor ran. Raises RecordError where it is not on the shelf."""
        if not actor:
            return None
        for candidate in self._actors:
            found = describe(candidate)
            if all(found[part] == actor.get(part) for part in _NAMED_BY):
                return candidate
        raise RecordError(self._missing(actor))

    def _missing(self, actor: Mapping[str, str]) -> str:
        name, digest = actor.get("name"), actor.get("digest", "")
        if any(describe(one)["digest"] == digest for one in self._actors):
            return f"actor {name!r} ({digest[:12]}) is there with another manifest: name the right one with --model"
        return f"actor {name!r} with sha256 {digest[:12]}… is not there: name its ONNX file or folder with --model"


def _load(file: Path) -> Actor:
    try:
        return Actor.load(file, Manifest.load(file.with_suffix(".json")))
    except ModelError as error:
        raise RecordError(str(error)) from error
