"""Actors by the policy's source: loaded once, reloaded on a change, a bad file never replaces a good one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rlscaler_core.decision.actor import Actor, ActorLike
from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import Rule
from rlscaler_operator.cluster.models import ModelFile, stamp_of
from rlscaler_operator.cluster.references import Name, References
from rlscaler_operator.exceptions import ModelUnavailableError
from rlscaler_operator.settings import Settings
from rlscaler_operator.state.policy import Policy

NamedActor = tuple[ActorLike | None, ModelUnavailableError | None]
"""An actor, and the error of its source; both where an older good one goes on."""


@dataclass(slots=True)
class _File:
    """A bundled ONNX file and its manifest."""

    onnx: Path
    manifest: Path
    stamp: tuple[object, ...] | None = None
    actor: Actor | None = None
    error: ModelUnavailableError | None = None

    def refresh(self) -> None:
        stamp = tuple(stamp_of(path) for path in (self.onnx, self.manifest))
        # A file is read again only when its size or time of change differs.
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
    """The actors in use. `get` costs a few calls of stat at most: models are loaded in threads."""

    def __init__(self, settings: Settings, config_maps: References[Actor]) -> None:
        folder = settings.model_dir or Path(str(resources.files("rlscaler_core.models")))
        self._ppo = _File(folder / "ppo.onnx", folder / "ppo.json")
        self._streams = _File(folder / "streams.onnx", folder / "streams.json")
        self._rule: ActorLike = Rule()
        self._policy_dir = settings.policy_dir
        self._files: dict[str, ModelFile] = {}
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="model-files")
        self._config_maps = config_maps

    def get(self, policy: Policy) -> NamedActor:
        """Return the actor that the spec names, and its error; while it is unusable, the actor of the last decision."""
        actor, error = self._named(policy)
        return actor or policy.decision.actor, error

    def bundled_trouble(self) -> str:
        """Return why the bundled network cannot be used; empty = it is loaded."""
        self._ppo.refresh()
        return "" if self._ppo.actor is not None else str(self._ppo.error)

    def pending(self, policy: Policy) -> bool:
        """Return whether the actor's source is being read for the first time."""
        if policy.decision.actor is not None:
            return False
        if (name := _config_map(policy)) is not None:
            return self._config_maps.get(name).pending
        path = policy.spec.policy.path
        return path is not None and self._policy_dir is not None and self._file(self._policy_dir, path).pending

    def _named(self, policy: Policy) -> NamedActor:
        source = policy.spec.policy
        if (name := _config_map(policy)) is not None:
            held = self._config_maps.get(name)
            error = held.error
            return held.value, error if isinstance(error, ModelUnavailableError) else None
        if source.path is not None:
            return self._of_file(source.path)
        bundled = policy.spec.bundled_policy
        if bundled == "rule":
            return self._rule, None
        file = self._streams if bundled == "streams" else self._ppo
        file.refresh()
        return file.actor, file.error

    def _of_file(self, path: str) -> NamedActor:
        if self._policy_dir is None:
            text = (
                "spec.policy.path needs an operator with --policy-dir: ask its administrator, or use policy.configMap"
            )
            return None, ModelUnavailableError(text, "ModelMissing")
        file = self._file(self._policy_dir, path)
        return file.actor, file.error

    def _file(self, folder: Path, path: str) -> ModelFile:
        """Return the model of this path as it is now."""
        if path not in self._files:
            self._files[path] = ModelFile(folder, path, self._threads)
        self._files[path].refresh()
        return self._files[path]


def _config_map(policy: Policy) -> Name | None:
    source = policy.spec.policy.config_map
    return None if source is None else Name(policy.key[0], source.name, source.key)
