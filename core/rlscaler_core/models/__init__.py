"""The policies that come with the package: `ppo.onnx` with its manifest `ppo.json`, and the forecast rule.

`rlscaler train --install` writes the two files.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from rlscaler_core.decision.actor import Actor, ActorLike
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import Rule

BUNDLED_POLICIES = ("ppo", "rule")
"""Names of the policies that come with the package."""


@cache
def load_bundled(name: str) -> ActorLike:
    """Give the policy `ppo`, the trained network, or `rule`, the forecast rule, loaded once a process.

    Raises ModelError for another name, and where the files are missing or damaged.
    """
    if name == "rule":
        return Rule()
    if name not in BUNDLED_POLICIES:
        raise ModelError(f"bundled policy {name!r}: there is none of that name; use {' or '.join(BUNDLED_POLICIES)}")
    folder = resources.files("rlscaler_core.models")
    onnx, manifest = folder / f"{name}.onnx", folder / f"{name}.json"
    if not (onnx.is_file() and manifest.is_file()):
        raise ModelError(f"bundled policy {name!r}: {name}.onnx or {name}.json is not in the package; make rl-train")
    return Actor.load(onnx.read_bytes(), Manifest.parse(manifest.read_bytes(), f"bundled policy {name!r}"))
