"""Actors by the policy's source: loaded once, reloaded when the file changes, a bad file never replaces a good one."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rlscaler_operator.api import Spec
from rlscaler_operator.exceptions import ModelUnavailableError
from rlscaler_operator.settings import Settings
from rlscaler_rl.decision.actor import Actor, ActorLike
from rlscaler_rl.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_rl.decision.manifest import Manifest
from rlscaler_rl.decision.rule import Rule

Stamp = tuple[tuple[float, int] | None, ...]
"""Modification time and size of each file; None = not there."""


@dataclass(slots=True)
class _File:
    """An ONNX file and its manifest."""

    onnx: Path
    manifest: Path
    stamp: Stamp | None = None
    actor: Actor | None = None
    error: ModelUnavailableError | None = None

    def refresh(self) -> None:
        stamp = tuple(_stamp(path) for path in (self.onnx, self.manifest))
        if stamp == self.stamp:
            return
        self.stamp = stamp
        try:
            self.actor, self.error = Actor.load(self.onnx, Manifest.load(self.manifest)), None
        except ContractMismatchError as error:
            self.error = ModelUnavailableError(str(error), "ModelContractMismatch")
        except ModelError as error:
            self.error = ModelUnavailableError(str(error), "ModelMissing" if stamp[0] is None else "ModelInvalid")


class Actors:
    """The actors in use. `get` costs two calls of stat."""

    def __init__(self, settings: Settings) -> None:
        folder = settings.model_dir or _bundled_folder()
        self._ppo = _File(folder / "ppo.onnx", folder / "ppo.json")
        self._rule: ActorLike = Rule()

    def get(self, spec: Spec) -> tuple[ActorLike | None, ModelUnavailableError | None]:
        """The actor to ask, and what is wrong with its file; both where an older good one goes on."""
        name = spec.policy.bundled_name
        if name == "rule":
            return self._rule, None
        if name is None:
            return None, ModelUnavailableError(
                "only bundled models are read in this version: use policy.bundled", "ModelSource"
            )
        self._ppo.refresh()
        return self._ppo.actor, self._ppo.error


def describe(actor: ActorLike | None) -> dict[str, str]:
    """Name, digest and contract of an actor, for the audit log."""
    if actor is None:
        return {}
    manifest = actor.manifest
    return {"name": manifest.name, "digest": manifest.digest, "contract": manifest.contract_version}


def _bundled_folder() -> Path:
    spec = find_spec("rlscaler_rl")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations))) / "models"


def _stamp(path: Path) -> tuple[float, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime, status.st_size
