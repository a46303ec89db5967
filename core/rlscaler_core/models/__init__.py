"""The actors that come with the package: the networks `ppo` for services and `streams` for consumers of a stream,
each an ONNX file with its manifest, and the forecast rule.

`rlscaler train --install` writes the two files of `ppo`, `rlscaler streams train --install` those of `streams`.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from rlscaler_core.decision.actor import Actor, ActorLike
from rlscaler_core.decision.exceptions import ModelError
from rlscaler_core.decision.manifest import Manifest
from rlscaler_core.decision.rule import Rule

BUNDLED_POLICIES = ("ppo", "rule")
"""Names of the actors for services that come with the package."""

STREAMS = "streams"
"""Name of the network for consumers of a stream."""


@cache
def load_bundled(name: str) -> ActorLike:
    """Return the actor `ppo` or `streams`, a trained network, or `rule`, the forecast rule, loaded once a process.

    Raises ModelError for another name, and where the files are missing or damaged.
    """
    if name == "rule":
        return Rule()
    if name not in (*BUNDLED_POLICIES, STREAMS):
        raise ModelError(f"bundled policy {name!r}: there is none of that name; use ppo, rule or streams")
    folder = resources.files("rlscaler_core.models")
    onnx, manifest = folder / f"{name}.onnx", folder / f"{name}.json"
    if not (onnx.is_file() and manifest.is_file()):
        raise ModelError(f"bundled policy {name!r}: {name}.onnx or {name}.json is not in the package; install it again")
    return Actor.load(onnx.read_bytes(), Manifest.parse(manifest.read_bytes(), f"bundled policy {name!r}"))
