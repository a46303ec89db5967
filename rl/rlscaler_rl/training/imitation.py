"""A start for PPO: the actor learns what a rule that knows the future would do, before it learns from rewards.

From an actor that does nothing, PPO needs millions of steps to find that replicas ordered now serve two intervals
later. The teacher is the hindsight rule, asked in the states that actor and teacher reach together (DAgger, Ross et
al. 2011). What the actor cannot see it averages over: it comes out too cheap and too late, and PPO goes on from there.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from torch import nn
from torch.nn import functional

from rlscaler_core.decision.action import HEADS, REACH
from rlscaler_core.decision.types import CPU, GPU, Float, Int, Placement
from rlscaler_rl.baselines.hindsight import HindsightSettings, sized_ahead
from rlscaler_rl.simulation.batch import Batch
from rlscaler_rl.simulation.vec_env import SimulatorVecEnv

STEPS, EPOCHS, MINIBATCH, LEARNING_RATE = 24, 4, 2048, 1e-3
"""Intervals a round, passes over all that was gathered so far, rows of a gradient step."""

TEACHER_SHARE = 0.3
"""Share of the teacher's actions after the first round; the others are the actor's own."""


class CriticFirst(BaseCallback):
    """Holds the actor as it is during the first rollouts: an actor that is good already and a critic that knows
    nothing yet would be spoilt by the first updates. `done` rollouts are behind a run that is resumed.
    """

    def __init__(self, rollouts: int, done: int = 0) -> None:
        super().__init__()
        self.rollouts, self.done = rollouts, done

    def _on_rollout_start(self) -> None:
        for part in actor_parts(self.model.policy):
            part.requires_grad_(self.done >= self.rollouts)
        self.done += 1

    def _on_step(self) -> bool:
        return True


def actor_parts(policy: nn.Module) -> list[nn.Module]:
    return [policy.mlp_extractor.policy_net, policy.action_net]


def imitate(model: PPO, env: SimulatorVecEnv, *, rounds: int, seed: int) -> list[float]:
    """Teach the actor for `rounds` x `STEPS` intervals of all environments; returns the loss of every round.

    The placement is left alone, as the teacher has no opinion on it.
    """
    if not rounds:
        return []
    rng, torch_rng = np.random.default_rng([seed, 7]), torch.Generator().manual_seed(seed)
    policy = model.policy
    weights = [weight for part in actor_parts(policy) for weight in part.parameters()]
    optimizer = torch.optim.Adam(weights, lr=LEARNING_RATE)
    seen, taught, losses = [], [], []
    observations = env.reset()
    for done in range(rounds):
        share = TEACHER_SHARE if done else 1.0
        for _ in range(STEPS):
            advice = teacher_actions(env)
            seen.append(observations.copy())
            taught.append(advice)
            with torch.no_grad():
                own = policy(torch.as_tensor(observations, device=policy.device))[0].cpu().numpy()
            observations = env.step(np.where(rng.random((len(own), 1)) < share, advice, own))[0]
        inputs, targets = (torch.as_tensor(np.concatenate(rows), device=policy.device) for rows in (seen, taught))
        for _ in range(EPOCHS):
            order = torch.randperm(len(inputs), generator=torch_rng)
            losses_here = [_step(policy, optimizer, inputs[part], targets[part]) for part in order.split(MINIBATCH)]
        losses.append(float(np.mean(losses_here)))
    return losses


def _step(policy: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    logits = policy.action_net(policy.mlp_extractor.forward_actor(inputs))
    gpu, cpu, _ = logits.split(HEADS, dim=1)
    loss = functional.cross_entropy(gpu, targets[:, GPU]) + functional.cross_entropy(cpu, targets[:, CPU])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def teacher_actions(env: SimulatorVecEnv) -> NDArray[np.int64]:
    """(n, 3) indices of MultiDiscrete([5, 5, 3]), for every environment at its own moment of its own episode."""
    return env.together([advice(group.batch) for group in env.groups])


def advice(batch: Batch) -> NDArray[np.int64]:
    """(N, 3) what the hindsight rule would do now within the reach of one action."""
    settings, params = HindsightSettings(), batch.params.copy()
    params.requests_per_second = batch.scenarios.rps
    interval = batch.scenarios.interval_seconds.astype(np.int64)
    lead = np.ceil(float(settings.lead) * params.cold_start_seconds).astype(np.int64) + interval[:, None]
    spec, ready = batch.cluster.pool["target"], batch.cluster.pool["ready"]
    far, near = (_peak(batch, lead[:, pool]) / float(settings.target) for pool in (GPU, CPU))
    wanted = sized_ahead(params, ready, far, near)
    later = sized_ahead(params, ready, _peak(batch, lead[:, GPU] + interval) / float(settings.target), near)
    wanted[:, GPU] = np.maximum(wanted[:, GPU], later[:, GPU] - REACH * params.step_size[:, GPU])
    steps = np.clip(np.ceil((wanted - spec) / params.step_size), -REACH, REACH)
    placement = np.full((len(steps), 1), int(Placement.BALANCED))
    return np.concatenate([np.where(params.present, steps + REACH, REACH), placement], axis=1).astype(np.int64)


def _peak(batch: Batch, lead: Int | NDArray[np.int64]) -> Float:
    """(N,) highest rate of the next `lead` (N,) seconds of each row; the load's end lasts."""
    offsets = np.arange(int(lead.max()))
    moments = np.minimum(batch.cluster.row["time"][:, None] + offsets, batch.scenarios.duration[:, None] - 1)
    rate = np.take_along_axis(batch.scenarios.rate, moments, axis=1)
    return np.asarray(np.where(offsets < lead[:, None], rate, 0.0).max(axis=1), np.float64)
