"""Arbiters without training: what their networks bid is arbitrary, and must not matter for what is promised."""

from __future__ import annotations

import torch

from rlscaler_core.arbiter.features import CONTRACT, FEATURES
from rlscaler_core.arbiter.learned import ArbiterManifest, Learned
from rlscaler_core.decision.actor import one_thread_session
from rlscaler_rl.tenants.environment import SLOTS
from rlscaler_rl.tenants.network import Policies, arbiter_onnx


def arbitrary_policies(seed: int, scale: float = 3.0) -> Policies:
    """Policies of all roles with drawn weights; a large `scale` makes them extreme."""
    torch.manual_seed(seed)
    policies = Policies(SLOTS, 16)
    with torch.no_grad():
        for weights in policies.parameters():
            weights.normal_(std=scale)
    return policies


def arbitrary_arbiter(seed: int, *, broken: bool = False) -> Learned:
    """An arbiter with drawn weights; `broken`: it gives NaN for whatever it is shown."""
    policies = arbitrary_policies(seed)
    if broken:
        with torch.no_grad():
            policies.of(2).logits.bias[1] = float("nan")
    manifest = ArbiterManifest(
        contract=CONTRACT, columns=FEATURES, digest="", trained_members=(1, 1), seed=seed, epochs=0
    )
    return Learned(one_thread_session(arbiter_onnx(policies), "arbitrary"), manifest)
