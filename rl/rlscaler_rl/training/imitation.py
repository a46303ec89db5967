"""A start for PPO: the actor learns what the planner would do, which knows the future, before it learns from rewards.

From an actor that does nothing, PPO needs millions of steps to find that replicas ordered now serve two intervals
later. The teacher is the plan of `planning.planner` for the episode, asked in the states that actor and teacher reach
together (DAgger, Ross et al. 2011). What the actor cannot see it averages over: it comes out too cheap and too late,
and PPO goes on from there. In the residual mode the teacher's replicas are told as steps from the rule's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from torch import nn
from torch.nn import functional

from rlscaler_core.decision.action import HEADS, REACH
from rlscaler_core.decision.rule import rule_replicas
from rlscaler_core.decision.types import Placement
from rlscaler_rl.planning.planner import STAGE_SECONDS, Planner, planned
from rlscaler_rl.simulation.ranges import Ranges
from rlscaler_rl.simulation.scenario import Scenarios
from rlscaler_rl.simulation.vec_env import Group, SimulatorVecEnv

STEPS, EPOCHS, MINIBATCH, LEARNING_RATE = 24, 4, 2048, 1e-3
"""Intervals a round, passes over all that was gathered so far, rows of a gradient step."""

TEACHER_SHARE = 0.3
"""Share of the teacher's actions after the first round; the others are the actor's own."""

PLANNED_ENVS = 256
"""Episodes that are imitated side by side."""

LARGEST_PLANNED = 12
"""Most replicas of a pool in these episodes: planning takes time in proportion to the pairs of replicas."""

SURE = 2.5
"""Logit of "no change" of an actor that has not learned anything yet and stands on a rule."""


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


def begin_with_no_change(policy: nn.Module) -> None:
    """Make the actor leave everything as it is, three times in four in each head: what it stands on is good already."""
    still = torch.zeros(sum(HEADS))
    for begin, chosen in ((0, REACH), (HEADS[0], REACH), (HEADS[0] + HEADS[1], int(Placement.BALANCED))):
        still[begin + chosen] = SURE
    with torch.no_grad():
        policy.action_net.weight.zero_()
        policy.action_net.bias.copy_(still)


def small(ranges: Ranges) -> Ranges:
    """Give the same ranges of services that are planned in time: of few replicas, in short episodes."""
    low, high = (min(bound, LARGEST_PLANNED) for bound in ranges.max_replicas)
    return replace(ranges, max_replicas=(low, high), durations=(min(ranges.durations),))


class PlannedEpisodes:
    """Episodes of one action interval that come with their plans; a scenario's `seed` is the number of its plan."""

    def __init__(self, scenarios: Scenarios, rng: np.random.Generator, first: int = 0) -> None:
        """Plan them, a third of a second each; plans are numbered from `first` on."""
        self.rng, self.scenarios, self.plan = rng, scenarios, planned(scenarios)
        self.scenarios.seed[:] = first + np.arange(len(scenarios))

    def take(self, n: int) -> Scenarios:
        """N of them, any of them more than once."""
        return self.scenarios.take(self.rng.integers(len(self.scenarios), size=n))


class PlannedEnv:
    """Environments whose episodes the planner has planned, and what the plans would do in them now."""

    def __init__(self, env: SimulatorVecEnv, plans: Sequence[Planner]) -> None:
        self.env = env
        self.targets = np.concatenate([plan.targets for plan in plans])
        self.placements = np.concatenate([plan.placements for plan in plans])

    def advice(self) -> NDArray[np.int64]:
        """(n, 3) indices of MultiDiscrete([5, 5, 3]), for every environment at its own moment of its own episode."""
        return self.env.together([self._of(group) for group in self.env.groups])

    def _of(self, group: Group) -> NDArray[np.int64]:
        batch = group.batch
        number = batch.scenarios.seed
        stages = (batch.scenarios.interval_seconds // STAGE_SECONDS).astype(np.int64)
        now = batch.cluster.row["time"] // STAGE_SECONDS
        ahead = np.minimum(np.arange(int(stages.max())), stages[:, None] - 1)
        last = self.targets.shape[1] - 1
        wanted = self.targets[number[:, None], np.minimum(now[:, None] + ahead, last)].max(axis=1)
        base = batch.cluster.pool["target"]
        if batch.rule is not None:
            base = rule_replicas(batch.params, batch.state, group.samples, batch.rule)
        steps = np.clip(np.rint((wanted - base) / batch.params.step_size), -REACH, REACH)
        placement = self.placements[number, np.minimum(now, last)][:, None]
        return np.concatenate([np.where(batch.params.present, steps + REACH, REACH), placement], axis=1).astype(
            np.int64
        )


def imitate(model: PPO, episodes: PlannedEnv, *, rounds: int, seed: int) -> list[float]:
    """Teach the actor for `rounds` x `STEPS` intervals of all environments; returns the loss of every round."""
    if not rounds:
        return []
    env = episodes.env
    rng, torch_rng = np.random.default_rng([seed, 7]), torch.Generator().manual_seed(seed)
    policy = model.policy
    weights = [weight for part in actor_parts(policy) for weight in part.parameters()]
    optimizer = torch.optim.Adam(weights, lr=LEARNING_RATE)
    seen, taught, losses = [], [], []
    observations = env.reset()
    for done in range(rounds):
        share = TEACHER_SHARE if done else 1.0
        for _ in range(STEPS):
            advice = episodes.advice()
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
    logits = policy.action_net(policy.mlp_extractor.forward_actor(inputs)).split(HEADS, dim=1)
    losses = [functional.cross_entropy(head, targets[:, i]) for i, head in enumerate(logits)]
    loss = torch.stack(losses).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())
