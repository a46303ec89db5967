"""The policies that come with the package."""

from __future__ import annotations

from functools import cache
from importlib import resources

from rlscaler_core.decision.actor import Actor, ActorLike
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import Rule

NAMES = ("ppo", "rule")


@cache
def load(name: str) -> ActorLike:
    """`ppo`, the trained network, or `rule`, the forecast rule. Loaded once a process. Raises ModelError."""
    if name == "rule":
        return Rule()
    if name not in NAMES:
        raise ModelError(f"bundled policy {name!r}: there is none of that name; use {' or '.join(NAMES)}")
    folder = resources.files("rlscaler_core.models")
    onnx, manifest = folder / f"{name}.onnx", folder / f"{name}.json"
    if not (onnx.is_file() and manifest.is_file()):
        raise ModelError(f"bundled policy {name!r}: {name}.onnx or {name}.json is not in the package; make rl-train")
    return Actor.load(onnx.read_bytes(), Manifest.parse(manifest.read_bytes(), f"bundled policy {name!r}"))
