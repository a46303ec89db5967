"""The learned arbiter: a network bids for every member, and the same filling that serves the rules hands out replicas.

A bid multiplies a member's weight in weighted max-min. It says who goes first beyond guarantees and nothing else: the
guarantees, ceilings, loans and the amount are kept by `arbitrate`, so no network can break them. Where the network
fails or gives anything that is not finite for a member, weighted max-min acts for the whole budget.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import onnxruntime
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlscaler_core.arbiter.features import CONTRACT, FEATURES, Signals, features, padded
from rlscaler_core.arbiter.filling import Candidates
from rlscaler_core.arbiter.rules import Claims, Order
from rlscaler_core.arbiter.types import Budgets, Loans, Members
from rlscaler_core.decision.actor import one_thread_session
from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.decision.graph import checked
from rlscaler_core.decision.types import Bool, Float, Float32, Int

INPUTS, OUTPUT = ("members", "mask"), "logits"
FILE = "arbiter"
"""The network is `arbiter.onnx`, and its manifest `arbiter.json`."""

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The factors of a member's weight for the five bids; the middle one is weighted max-min."""


class ArbiterManifest(BaseModel):
    """The manifest of a network's file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    contract: str
    columns: tuple[str, ...]
    digest: str
    """SHA-256 of the ONNX file."""
    trained_members: tuple[int, int]
    """Fewest and most members of the training budgets; informative only, since the network takes any number."""
    seed: int
    epochs: int = Field(ge=0)


@dataclass(frozen=True, slots=True)
class Bids:
    """The network's bids for M members of B budgets."""

    factor: Float
    """(M,) by which each member's weight is multiplied; 1 where weighted max-min acts instead."""
    usable: Bool
    """(B,) False where the network's answer for a budget was not usable, so that weighted max-min acts."""
    failure: str | None = None
    """Why the network failed as a whole; None where it did not."""

    @property
    def order(self) -> Order:
        """The order of replicas for `arbitrate`: first the member with least for its weight times its bid."""

        def by_bids(claims: Claims, chosen: Candidates) -> tuple[Float, ...]:
            who = chosen.member
            return (chosen.number * claims.dominant[who] / (claims.members.weight[who] * self.factor[who]),)

        return by_bids


class Learned:
    """A graph from `members` (B, K, columns) and `mask` (B, K, 1) to `logits` (B, K, 5), float32, on one thread.

    Ask it once an interval: `arbitrate(learned.bids(...).order, budgets, members, loans)`.
    """

    def __init__(self, session: onnxruntime.InferenceSession, manifest: ArbiterManifest) -> None:
        self.manifest = manifest
        self._session = session

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load arbiter.onnx and arbiter.json of a folder.

        Raises ContractMismatchError where the network is made for other columns, ModelError where a file is missing,
        damaged, no graph that is allowed, or gives another shape or NaN for members of whom nothing is known.
        """
        path, described = folder / f"{FILE}.onnx", folder / f"{FILE}.json"
        try:
            manifest = ArbiterManifest.model_validate_json(described.read_text(encoding="utf-8"))
            content = path.read_bytes()
        except OSError as error:
            raise ModelError(f"{error.filename}: {error.strerror}; name a folder that `tenants train` left") from error
        except (ValidationError, ValueError) as error:
            raise ModelError(f"{described}: no manifest of an arbiter's network: {error}; train it again") from error
        if (manifest.contract, manifest.columns) != (CONTRACT, FEATURES):
            raise ContractMismatchError(
                f"{described}: it is a network of contract {manifest.contract} with the columns "
                f"{', '.join(manifest.columns)}, not of {CONTRACT} with {', '.join(FEATURES)}: train it again"
            )
        digest = hashlib.sha256(content).hexdigest()
        if digest != manifest.digest:
            raise ModelError(
                f"{path}: sha256 is {digest} and the manifest says {manifest.digest}; copy both files again"
            )
        learned = cls(one_thread_session(checked(content, str(path)), str(path)), manifest)
        for b, k in ((1, 1), (2, 3)):
            logits = learned._logits(np.zeros((b, k, len(FEATURES)), np.float32), np.ones((b, k, 1), np.float32))
            if not np.isfinite(logits).all():
                raise ModelError(f"{path}: the network gives NaN for members that are all zero; train it again")
        return learned

    def bids(self, budgets: Budgets, members: Members, loans: Loans, signals: Signals) -> Bids:
        """Return a bid for every member. A failing network never raises: then none of its bids is usable."""
        wide, mask, place = padded(features(budgets, members, loans, signals), members.budget, len(budgets))
        try:
            return chosen(self._logits(wide, mask)[place], members.budget, len(budgets))
        except ModelError as error:
            return Bids(np.ones(len(members)), np.zeros(len(budgets), np.bool_), str(error))

    def _logits(self, wide: Float32, mask: Float32) -> Float32:
        try:
            (logits,) = self._session.run([OUTPUT], dict(zip(INPUTS, (wide, mask), strict=True)))
        except Exception as error:  # the runtime raises classes of its own for each fault
            raise ModelError(f"the arbiter's network failed: {error}; train it again") from error
        if logits.shape != (*wide.shape[:2], len(FACTORS)):
            raise ModelError(f"the arbiter's network gives {logits.shape} for members {wide.shape[:2]}; train it again")
        return np.asarray(logits, np.float32)


def chosen(logits: Float32, budget: Int, b: int) -> Bids:
    """Return the most likely bids for logits (M, 5) of members of B budgets; weighted max-min in budgets with a NaN."""
    # One unusable bid makes the whole budget fall back: bids count only relative to each other.
    bad = np.bincount(budget, ~np.isfinite(logits).all(axis=1), b) > 0
    best = np.where(np.isfinite(logits), logits, -np.inf).argmax(axis=1)
    factor = np.where(bad[budget], 1.0, np.array(FACTORS)[best])
    return Bids(factor, ~bad)
