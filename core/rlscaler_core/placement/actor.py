"""A trained network that scores nodes: ONNX and a manifest with scoring policy and contract. No pickle is ever read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

import numpy as np
import onnxruntime
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlscaler_core.decision.actor import one_thread_session
from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.decision.graph import checked
from rlscaler_core.placement.features import CONTRACT, Float32, columns, features
from rlscaler_core.placement.policies import RULES_OF, Policy
from rlscaler_core.placement.types import Bool, Float, Nodes, Pods

INPUT, OUTPUT = "nodes", "values"


class PlacementManifest(BaseModel):
    """Manifest of a network's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    contract: str
    policy: Policy
    columns: tuple[str, ...]
    digest: str
    """SHA-256 of the ONNX file."""
    trained_nodes: tuple[int, int]
    """Fewest and most nodes of the clusters that it was trained on. Only said: the layers take any number."""
    rule: str = ""
    """The rule whose scores are the first column; manifests of earlier contracts do not say it."""
    steps: int = Field(ge=0)
    """Placements that it was trained on."""
    seed: int


class PlacementActor:
    """An ONNX graph that maps `nodes` (1, N, columns) float32 to `values` (1, N) float32, for any N, on one thread."""

    def __init__(self, session: onnxruntime.InferenceSession, manifest: PlacementManifest) -> None:
        self.manifest = manifest
        self._session = session

    @classmethod
    def load(cls, folder: Path, policy: Policy) -> Self:
        """Load POLICY.onnx and POLICY.json of a folder.

        Raises ContractMismatchError where it is made for other columns or another scoring policy, ModelError where a
        file is missing, damaged or no allowed graph.
        """
        onnx, described = folder / f"{policy}.onnx", folder / f"{policy}.json"
        manifest = _manifest(described)
        if (manifest.contract, manifest.policy, manifest.columns) != (CONTRACT, policy, columns(policy)):
            raise ContractMismatchError(
                f"{described}: it is a network for policy {manifest.policy} of contract {manifest.contract} with the "
                f"columns {', '.join(manifest.columns)}, not for {policy} of {CONTRACT}: train it again"
            )
        if manifest.rule not in RULES_OF[policy]:
            raise ContractMismatchError(
                f"{described}: its first column is the rule {manifest.rule}, which is none of {policy} "
                f"({', '.join(RULES_OF[policy])}): train it again"
            )
        try:
            content = onnx.read_bytes()
        except OSError as error:
            raise ModelError(f"{onnx}: {error.strerror}; copy the network beside its manifest") from error
        digest = hashlib.sha256(content).hexdigest()
        if digest != manifest.digest:
            raise ModelError(
                f"{onnx}: sha256 is {digest} and the manifest says {manifest.digest}; copy both files again"
            )
        actor = cls(one_thread_session(checked(content, str(onnx)), str(onnx)), manifest)
        for count in (1, 3):
            if not np.isfinite(actor.values(np.zeros((count, len(manifest.columns)), np.float32))).all():
                raise ModelError(f"{onnx}: the network gives NaN for nodes that are all zero; train it again")
        return actor

    def seen(self, nodes: Nodes, pods: Pods, among: Bool) -> Float32:
        """(..., N, columns) inputs of the network for nodes."""
        return features(self.manifest.policy, nodes, pods, among, rule=self.manifest.rule)

    def values(self, seen: Float32) -> Float:
        """(N,) the value of each node for features (N, columns). Raises ModelError where the runtime fails."""
        try:
            (scores,) = self._session.run([OUTPUT], {INPUT: seen[None]})
        except Exception as error:  # the runtime raises classes of its own for each fault
            raise ModelError(f"the network for {self.manifest.policy} failed: {error}; train it again") from error
        if scores.shape != (1, len(seen)):
            raise ModelError(f"the network for {self.manifest.policy} gives {scores.shape} for {len(seen)} nodes")
        return np.asarray(scores[0], float)


def _manifest(path: Path) -> PlacementManifest:
    try:
        return PlacementManifest.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}; name a folder with a network for this policy") from error
    except (ValidationError, ValueError) as error:
        raise ModelError(f"{path}: no manifest of a placement network: {error}; train it again") from error
