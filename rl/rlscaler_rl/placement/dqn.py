"""DQN for placement, in one file that reads from top to bottom: settings, memory, targets, the loop, validation.

Mnih et al. 2015, with double targets (van Hasselt et al. 2016), a dueling head (Wang et al. 2016) and actions that are
masked in acting and in targets alike. Clusters of several sizes are played side by side; one network serves all.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rlscaler_core.placement.features import Float32, columns, features
from rlscaler_core.placement.policies import DEFAULT_RULE, Policy, choose
from rlscaler_core.placement.types import Bool, Float, Int, Nodes, Pods
from rlscaler_rl.placement.drawn import VALIDATION_SEED, Setting
from rlscaler_rl.placement.environment import Placement
from rlscaler_rl.placement.network import DeepSets
from rlscaler_rl.placement.play import Contender, play, score
from rlscaler_rl.placement.thesis import judged
from rlscaler_rl.placement.trained import Record, Run, Trained, unrecorded

NEVER = -1e9
"""Value of a node that the pod may not go to."""


@dataclass(frozen=True)
class Options:
    """Settings of a training."""

    policy: Policy
    steps: int = 120_000
    """Placements on all clusters together."""
    seed: int = 0
    nodes: tuple[int, ...] = (6, 12, 24)
    """Sizes of the clusters that are played side by side."""
    clusters: int = 32
    """Clusters of each size."""
    load: float = 0.6
    lifetimes_known: bool = False
    lifetime_error: float = 0.0
    """Error of the lifetimes that pods state, as in `Setting`."""
    hidden: int = 32
    double: bool = True
    dueling: bool = True
    rule: str | None = None
    """The rule of the first column; None = the policy's default."""
    by_rule: float = 1.0
    """Weight of the rule's column at the start; 0 = learn without the rule."""
    thesis_reward: bool = False
    """Rewards and ends of episodes of the thesis, in place of the part of the score that each placement adds."""
    failures_per_day: float = 0.1
    """Failures of a node a day, as in `Setting`."""
    gamma: float = 0.9
    learning_rate: float = 1e-3
    learning_starts: int = 0
    """Placements before the first update."""
    learn_every: int = 1
    """Rounds of placements between two updates."""
    batch: int = 256
    memory: int = 300
    """Steps of each size of cluster in the replay memory."""
    explore: tuple[float, float] = (0.3, 0.02)
    """Share of random placements at the start, and after `explore_share` of the steps."""
    explore_share: float = 0.5
    """Share of the steps in which exploration falls."""
    follow: float = 0.01
    """Share by which the target network moves towards the learning one."""
    follow_every: int = 1
    """Rounds of placements between two such moves."""
    looks: int = 8
    """Trials of the network on clusters of other seeds; the best network is saved."""
    keep_looks: bool = False
    """Whether the network of each trial is kept as well."""


def thesis(options: Options) -> Options:
    """Return the options with the rewards of the thesis and the settings of its published code: CleanRL's `dqn.py`."""
    return replace(
        options,
        thesis_reward=True,
        failures_per_day=0.0,
        steps=2000,
        nodes=(3,),
        clusters=1,
        double=False,
        dueling=False,
        by_rule=0.0,
        gamma=0.99,
        learning_rate=2.5e-3,
        learning_starts=300,
        learn_every=10,
        batch=128,
        memory=10_000,
        explore=(1.0, 0.05),
        explore_share=0.3,
        follow=1.0,
        follow_every=500,
    )


class Memory:
    """The last steps of clusters of one size; the next state of a step is the state of the following one."""

    def __init__(self, steps: int, clusters: int, nodes: int, width: int) -> None:
        self.seen = torch.zeros(steps, clusters, nodes, width)
        self.mask = torch.zeros(steps, clusters, nodes, dtype=torch.bool)
        self.action = torch.zeros(steps, clusters, dtype=torch.int64)
        self.reward = torch.zeros(steps, clusters)
        self.ended = torch.zeros(steps, clusters, dtype=torch.bool)
        self.count, self.size = 0, steps

    def add(self, seen: Float32, mask: Bool, action: Int, reward: Float, ended: Bool) -> None:
        at = self.count % self.size
        self.seen[at], self.mask[at] = torch.from_numpy(seen), torch.from_numpy(mask)
        self.action[at], self.reward[at] = torch.from_numpy(action), torch.from_numpy(reward).float()
        self.ended[at] = torch.from_numpy(ended)
        self.count += 1

    def draw(self, batch: int, rng: np.random.Generator) -> tuple[Tensor, ...]:
        """Seen, action, reward, next seen and next mask of steps drawn from those that were placed.

        No node is allowed next where the episode ended: nothing comes after it.
        """
        held = min(self.count, self.size)
        oldest = self.count - held
        # The newest step has no next state yet.
        at = oldest + rng.integers(held - 1, size=batch)
        row = rng.integers(self.seen.shape[1], size=batch)
        here, there = at % self.size, (at + 1) % self.size
        placed = torch.from_numpy(np.flatnonzero(self.action[here, row].numpy() >= 0))
        here, there, row = here[placed], there[placed], row[placed]
        return (
            self.seen[here, row],
            self.action[here, row],
            self.reward[here, row],
            self.seen[there, row],
            self.mask[there, row] & ~self.ended[here, row][:, None],
        )


def acting(net: DeepSets, policy: Policy, rule: str | None = None) -> Contender:
    """The network as one that scores."""

    @torch.no_grad()
    def scores(nodes: Nodes, pods: Pods, among: Bool) -> Float:
        values: Float = net(torch.from_numpy(features(policy, nodes, pods, among, rule=rule))).double().numpy()
        return values

    return scores


def train(options: Options, say: Callable[[str], None] = lambda _: None, record: Record = unrecorded) -> Trained:
    """Train a network; the checkpoint is the best on clusters whose seeds training never plays.

    :param record: called with a name, a number and the placements so far.
    """
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(options.seed)
    envs = [
        Placement(_setting(options, n, options.clusters), 1000 * options.seed + i) for i, n in enumerate(options.nodes)
    ]
    width = len(columns(options.policy))
    memories = [Memory(options.memory, options.clusters, n, width) for n in options.nodes]
    net = DeepSets(width, options.hidden, options.dueling, options.by_rule)
    target = copy.deepcopy(net)
    adam = torch.optim.Adam(net.parameters(), options.learning_rate)
    each = options.clusters * len(envs)
    rounds = options.steps // each
    begin, looking = time.perf_counter(), 0.0
    best, best_score, curve, looks = copy.deepcopy(net), -np.inf, [], dict[int, DeepSets]()
    for step in range(rounds + 1):
        if step % max(rounds // options.looks, 1) == 0:
            looked = time.perf_counter()
            score = _validate(net, options)
            curve.append((step * each, score))
            if options.keep_looks:
                looks[step * each] = copy.deepcopy(net)
            record("validation/score", score, step * each)
            if score > best_score:
                best, best_score = copy.deepcopy(net), score
            looking += time.perf_counter() - looked
            say(f"{options.policy} {curve[-1][0]:>9,} placements: {score:.4f} (best {best_score:.4f})")
        # Exploration falls linearly over the first part of the steps.
        share = max(1 - step / max(options.explore_share * rounds, 1.0), 0.0)
        explore = options.explore[1] + share * (options.explore[0] - options.explore[1])
        record("charts/epsilon", explore, step * each)
        for env, memory in zip(envs, memories, strict=True):
            record(f"charts/reward_{env.setting.nodes}", _act(env, memory, net, options, explore, rng), step * each)
            # A batch from fewer steps would repeat the same few placements.
            if memory.count >= 16 and step * each >= options.learning_starts and step % options.learn_every == 0:
                loss = _learn(net, target, adam, memory.draw(options.batch, rng), options)
                record(f"losses/td_loss_{env.setting.nodes}", loss, step * each)
        if step % options.follow_every == 0:
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), net.parameters(), strict=True):
                    slow.lerp_(fast, options.follow)
    took = time.perf_counter() - begin
    return Trained(
        best,
        options.policy,
        options.rule or DEFAULT_RULE[options.policy],
        (min(options.nodes), max(options.nodes)),
        options.seed,
        Run(options.steps, took, looking, curve),
        looks,
    )


def _act(
    env: Placement, memory: Memory, net: DeepSets, options: Options, explore: float, rng: np.random.Generator
) -> float:
    """Place a pod on each cluster, and return the mean reward."""
    among = env.mask()
    seen = features(options.policy, env.nodes, env.pods, among, rule=options.rule)
    with torch.no_grad():
        values = net(torch.from_numpy(seen)).double().numpy()
    values = np.where(rng.random(len(values))[:, None] < explore, rng.random(values.shape), values)
    node = choose(values, env.nodes, env.pods, among)
    ended = np.zeros(len(node), bool)
    if options.thesis_reward:
        # The thesis judges the nodes as they were before the placement.
        reward, ended = judged(options.policy, env.nodes, env.pods, node)
        env.step(node)
    else:
        reward = env.step(node).reward
    memory.add(seen, among, node, reward, ended)
    return float(reward.mean())


def _learn(
    net: DeepSets, target: DeepSets, adam: torch.optim.Optimizer, drawn: tuple[Tensor, ...], options: Options
) -> float:
    """Update the network on a batch, and return the loss."""
    seen, action, reward, then, mask = drawn
    with torch.no_grad():
        # Double targets: the learning network chooses, the slow one judges, so that chance is not taken for value.
        chooser = net if options.double else target
        node = chooser(then).masked_fill(~mask, NEVER).argmax(1, keepdim=True)
        # A pod that no node may take, and the end of an episode, have no next placement, and so no value.
        worth = torch.where(mask.any(1), target(then).gather(1, node)[:, 0], torch.zeros(len(then)))
        aim = reward + options.gamma * worth
    value = net(seen).gather(1, action[:, None])[:, 0]
    loss = functional.smooth_l1_loss(value, aim)
    adam.zero_grad()
    loss.backward()
    # A rare large error must not throw the network off.
    torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    adam.step()
    return float(loss.detach())


def _setting(options: Options, nodes: int, clusters: int) -> Setting:
    return Setting(
        options.policy,
        nodes,
        clusters,
        options.load,
        options.lifetimes_known,
        options.lifetime_error,
        options.failures_per_day,
        # The thesis learns hard limits from episodes that end above them.
        hard_refuses=not options.thesis_reward,
    )


def _validate(net: DeepSets, options: Options) -> float:
    setting = replace(_setting(options, 12, 24), hard_refuses=True)
    contender = acting(net, options.policy, options.rule)
    return float(score(options.policy, play(contender, setting, VALIDATION_SEED, steps=200)).mean())
