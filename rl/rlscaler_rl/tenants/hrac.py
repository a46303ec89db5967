"""HRAC with LGRS in one file that reads from top to bottom: settings, memory, updates, rewards, the loop, selection.

Heterogeneous role-based actor-critic with local-global reward shaping, after arXiv 2508.10253, whose code is not
public. All agents of a role share a policy; off-policy critics see all agents through attention, in training only. Each
agent learns from lambda * r_local + (1 - lambda) * R_global.

The paper takes R_global = V(S') - V(S). Discounted over an episode that is -V(S_0) plus the sum of (1 - gamma) V(S'):
agents are paid for states that the present policies find valuable, and not for the reward R of the pool. The best
policies then depend on V. Here R_global = R + gamma V(S') - V(S) by default, R with potential-based shaping by V (Ng,
Harada & Russell 1999): for any V that is held fixed the best policies are those of lambda * r_local + (1 - lambda) * R.
"""

from __future__ import annotations

import copy
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlscaler_core.arbiter.features import CONTRACT, FEATURES
from rlscaler_core.arbiter.learned import FILE, ArbiterManifest
from rlscaler_core.decision.types import Float32
from rlscaler_rl.tenants.draw import TRAIN_LOADS, TUNE_LOADS, Request
from rlscaler_rl.tenants.environment import AS_THE_RULE, SLOTS, WIDTH, Rewards, Setting, TenantsEnv
from rlscaler_rl.tenants.network import ARBITER, Attention, Critic, Policies, Value, arbiter_onnx, tenant_onnx
from rlscaler_rl.tenants.signals import NONE_LOST, Loss
from rlscaler_rl.tenants.tasks import TasksEnv
from rlscaler_rl.workloads import Part


@dataclass(frozen=True)
class Options:
    """Settings of a training."""

    seed: int = 0
    epochs: int = 30
    """Episodes of all pools; each is drawn anew."""
    tenants: int = 6
    pools: int = 16
    """Played side by side."""
    hours: int = 1
    tightness: float = 0.7
    cpu: bool = True
    """Tenants have a CPU pool of their own too, which is not shared."""
    loss: Loss = NONE_LOST
    """Information that is lost in training."""
    local: float = 0.5
    """Lambda: the weight of the local reward; the rest is the global one's."""
    shaping: Literal["potential", "difference"] = "potential"
    """`potential` leaves the optimum as it is, `difference` is the paper's V(S') - V(S)."""
    roles: tuple[str, ...] = SLOTS
    """The role of each slot. With one and the same, a homogeneous policy is shared by all agents."""
    acts: tuple[bool, ...] = (True, True, True)
    """Slots that act; the others do as the rule does, and learn nothing."""
    budget: bool = True
    """False: no arbiter shares the pools; the pod that was created first has the GPU, and bids change nothing."""
    attention: Attention = "grouped"
    hidden: int = 64
    gamma: float = 0.95
    learning_rate: float = 1e-3
    entropy: float = 0.005
    """Reward of a nat of entropy of a policy."""
    batch: int = 64
    """Pools at one moment that an update learns from."""
    learn_every: int = 3
    """Steps of all pools from one update to the next."""
    memory: int = 4000
    """Moments in the replay memory; the oldest is overwritten."""
    follow: float = 0.01
    """Share by which the target networks move towards the learning ones after each update."""
    looks: int = 5
    """Trials of the policies on the tune loads; the best are saved."""
    look_pools: int = 8

    @property
    def setting(self) -> Setting:
        """Setting of the training episodes."""
        request = Request(
            self.tenants, self.pools, self.hours, self.tightness, TRAIN_LOADS, Part.TRAIN, self.cpu, self.seed
        )
        return Setting(request, self.loss, "agent" if self.budget else None)


def homogeneous(options: Options) -> Options:
    """The same with the roles off: one policy for all agents, as IPPO and MAPPO share theirs."""
    return replace(options, roles=("all",) * len(SLOTS))


class Memory:
    """Replay memory: the last moments of pools, each with the next one."""

    def __init__(self, size: int, tenants: int) -> None:
        slots = len(SLOTS)
        self.seen = torch.zeros(size, tenants, slots, WIDTH)
        self.then = torch.zeros(size, tenants, slots, WIDTH)
        self.action = torch.zeros(size, tenants, slots, dtype=torch.int64)
        self.local = torch.zeros(size, tenants, slots)
        self.total = torch.zeros(size)
        self.size, self.count = size, 0

    def add(self, seen: np.ndarray, action: np.ndarray, rewards: Rewards, then: np.ndarray) -> None:
        at = torch.arange(self.count, self.count + len(seen)) % self.size
        self.seen[at], self.then[at] = torch.from_numpy(seen), torch.from_numpy(then)
        self.action[at] = torch.from_numpy(action)
        self.local[at], self.total[at] = torch.from_numpy(rewards.local), torch.from_numpy(rewards.total)
        self.count += len(seen)

    def draw(self, batch: int, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Observation (K, M, 3, WIDTH), action (K, M, 3), local (K, M, 3) and total (K,) reward, and the next
        observation."""
        at = torch.randint(min(self.count, self.size), (batch,), generator=generator)
        return self.seen[at], self.action[at], self.local[at], self.total[at], self.then[at]


class Learner:
    """The networks, their targets, and one update."""

    def __init__(self, options: Options) -> None:
        # Small networks: several threads would wait for each other longer than they compute.
        torch.set_num_threads(1)
        torch.manual_seed(options.seed)
        self.options = options
        self.policies = Policies(options.roles, options.hidden)
        self.critic = Critic(options.roles, options.hidden, options.attention)
        self.value = Value(options.roles, options.hidden)
        self.slow = copy.deepcopy(nn.ModuleList([self.critic, self.value]))
        critics = [*self.critic.parameters(), *self.value.parameters()]
        self._critics = torch.optim.Adam(critics, options.learning_rate)
        self._actors = torch.optim.Adam(self.policies.parameters(), options.learning_rate)
        self._acts = torch.tensor(options.acts)
        self._generator = torch.Generator().manual_seed(options.seed)

    @torch.no_grad()
    def act(self, seen: np.ndarray, greedy: bool = False) -> np.ndarray:
        """Actions (P, M, 3) for the observations (P, M, 3, WIDTH)."""
        x = torch.from_numpy(seen)
        logits = self.policies(x, torch.ones(x.shape[:2], dtype=torch.bool))
        chosen = logits.argmax(-1) if greedy else self._sample(logits)
        actions: np.ndarray = torch.where(self._acts, chosen, AS_THE_RULE).numpy()
        return actions

    def update(self, drawn: tuple[Tensor, ...]) -> None:
        """One step of critics, value and policies."""
        options = self.options
        seen, action, local, total, then = drawn
        there = torch.ones(seen.shape[:2], dtype=torch.bool)
        slow_critic, slow_value = self.slow
        with torch.no_grad():
            value, next_value = slow_value(seen, there), slow_value(then, there)
            reward = shaped(options, local, total, value, next_value)
            logits = self.policies(then, there).log_softmax(-1)
            ahead = slow_critic(then, self._acted(logits), there)
            # Expectation over the actions of a slot instead of a sample (soft Q of discrete actions): less variance.
            worth = (logits.exp() * (ahead - options.entropy * logits)).sum(-1)
            # A slot that does not act always does as the rule does.
            worth = torch.where(self._acts, worth, ahead[..., AS_THE_RULE])
            aim = reward + options.gamma * worth
        values = self.critic(seen, action, there).gather(-1, action[..., None])[..., 0]
        wrong = ((values - aim) ** 2 * self._acts).mean()
        # The potential V is learned from the rewards of the pool alone, apart from the shaped ones.
        wrong = wrong + ((self.value(seen, there) - total - options.gamma * next_value) ** 2).mean()
        self._step(self._critics, wrong)

        logits = self.policies(seen, there).log_softmax(-1)
        with torch.no_grad():
            worth = self.critic(seen, self._acted(logits), there)
        gain = (logits.exp() * (worth - options.entropy * logits)).sum(-1)
        self._step(self._actors, -(gain * self._acts).mean())
        with torch.no_grad():
            fast = [*self.critic.parameters(), *self.value.parameters()]
            # Slow targets keep the bootstrapped values from running after themselves.
            for behind, ahead in zip(self.slow.parameters(), fast, strict=True):
                behind.lerp_(ahead, options.follow)

    def draw(self, memory: Memory) -> tuple[Tensor, ...]:
        return memory.draw(self.options.batch, self._generator)

    def _sample(self, logits: Tensor) -> Tensor:
        flat = logits.softmax(-1).flatten(0, -2)
        return torch.multinomial(flat, 1, generator=self._generator).reshape(logits.shape[:-1])

    def _acted(self, logits: Tensor) -> Tensor:
        return torch.where(self._acts, self._sample(logits), AS_THE_RULE)

    def _step(self, optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], 5.0)
        optimiser.step()


def shaped(options: Options, local: Tensor, total: Tensor, value: Tensor, next_value: Tensor) -> Tensor:
    """LGRS: reward that each slot (P, M, 3) learns from. The pool's reward and its values before and after are (P,)."""
    shared = total + options.gamma * next_value - value if options.shaping == "potential" else next_value - value
    return options.local * local + (1 - options.local) * shared[:, None, None]


@dataclass
class Trained:
    """The best policies of a run."""

    policies: Policies
    options: Options
    seconds: float
    returns: list[float] = field(default_factory=list)
    """Mean reward of the pools in every epoch, while exploring."""
    curve: list[tuple[int, float]] = field(default_factory=list)
    """Epoch, and the mean J of a tenant on the tune loads, greedily."""

    def epochs_to(self, share: float = 0.95) -> int:
        """The epoch of the first look with `share` of all that was gained in J on the tune loads; 0 where nothing was.

        Returns do not say it: every epoch has pools of its own, and differs from the next one by more than is learned.
        """
        first, best = self.curve[0][1], min(j for _, j in self.curve)
        return next(epoch for epoch, j in self.curve if j <= first - share * (first - best) + 1e-12)

    def save(self, folder: Path) -> None:
        """Write an ONNX for each slot, the arbiter's manifest, the options and the progress."""
        folder.mkdir(parents=True, exist_ok=True)
        content = arbiter_onnx(self.policies)
        manifest = ArbiterManifest(
            contract=CONTRACT,
            columns=FEATURES,
            digest=hashlib.sha256(content).hexdigest(),
            trained_members=(self.options.tenants, self.options.tenants),
            seed=self.options.seed,
            epochs=self.options.epochs,
        )
        (folder / f"{FILE}.onnx").write_bytes(content)
        (folder / f"{FILE}.json").write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
        for slot in range(ARBITER):
            (folder / f"{SLOTS[slot]}.onnx").write_bytes(tenant_onnx(self.policies, slot))
        progress = {
            "options": asdict(self.options),
            "seconds": round(self.seconds, 1),
            "returns": self.returns,
            "curve": self.curve,
            "epochs_to_95_percent": self.epochs_to(),
        }
        (folder / "training_progress.json").write_text(json.dumps(progress, indent=1) + "\n", encoding="utf-8")


def train(options: Options, say: Callable[[str], None] = lambda _: None) -> Trained:
    """Train policies, and return the best ones on loads that training never plays."""
    return train_together([options], say)[0]


def train_together(several: Sequence[Options], say: Callable[[str], None] = lambda _: None) -> list[Trained]:
    """Train several that play the same setting, but for the seed, side by side: the simulator plays all pools at once.

    Each has networks, memory and pools of its own, as if it were alone, in a fraction of the time. Only draws for all
    pools at once differ from a training alone: the order of pods that are created in the same tick, and the lost
    information. `seconds` of each is its part of the time of all. Raises ValueError for different settings.
    """
    common = several[0]
    if any(played_alike(options) != played_alike(common) for options in several):
        raise ValueError("trainings side by side have to play the same setting for as many epochs; train others apart")
    learners = [Learner(options) for options in several]
    memories = [Memory(options.memory, options.tenants) for options in several]
    env = TenantsEnv(common.setting, common.seed)
    begin = time.perf_counter()
    runs = [Trained(copy.deepcopy(learner.policies), learner.options, 0.0) for learner in learners]
    for epoch in range(common.epochs + 1):
        if epoch % max(common.epochs // common.looks, 1) == 0 or epoch == common.epochs:
            scores = _look(learners)
            of = f" (mean of {len(runs)} trainings)" if len(runs) > 1 else ""
            say(f"epoch {epoch}: J {np.mean(scores):.3f} a tenant on the tune loads{of}")
            for run, learner, j in zip(runs, learners, scores, strict=True):
                best = min((before for _, before in run.curve), default=np.inf)
                run.curve.append((epoch, j))
                if j < best:
                    run.policies = copy.deepcopy(learner.policies)
        if epoch < common.epochs:
            for run, value in zip(runs, play_epoch(env, learners, memories, epoch), strict=True):
                run.returns.append(value)
    for run in runs:
        run.seconds = (time.perf_counter() - begin) / len(runs)
    return runs


def played_alike(options: Options) -> tuple[object, ...]:
    """Settings that trainings must have in common to be played side by side."""
    setting = options.setting
    request = replace(setting.request, seed=0)
    return replace(setting, request=request), options.epochs, options.looks, options.look_pools


def play_epoch(env: TenantsEnv | TasksEnv, learners: list[Learner], memories: list[Memory], epoch: int) -> list[float]:
    """Play an episode of all pools, learn from it, and return each learner's mean reward."""
    # Pools differ by epoch, and by seed of the training: seeds never share a draw.
    seen, done = env.reset(*(1_000 * (each.options.seed + 1) + epoch for each in learners)), False
    rewards: list[Float32] = []
    while not done:
        action = _act(learners, seen)
        then, reward, done = env.step(action)
        parts = (np.split(values, len(learners)) for values in (seen, action, *reward, then))
        for memory, was, acted, local, total, came in zip(memories, *parts, strict=True):
            memory.add(was, acted, Rewards(local, total), came)
        seen = then
        rewards.append(reward.total)
        for learner, memory in zip(learners, memories, strict=True):
            # Four batches in memory first, so that updates do not fit the first moments.
            if len(rewards) % learner.options.learn_every == 0 and memory.count >= 4 * learner.options.batch:
                learner.update(learner.draw(memory))
    return [float(values.mean()) for values in np.split(np.stack(rewards), len(learners), axis=1)]


def _look(learners: list[Learner]) -> list[float]:
    """Return each learner's mean J of a tenant on the tune loads, greedily."""
    options = learners[0].options
    setting = options.setting
    request = replace(setting.request, pools=options.look_pools, loads=TUNE_LOADS, part=Part.TUNE, seed=777)
    env = TenantsEnv(replace(setting, request=request), options.seed)
    seen, done = env.reset(*[request.seed] * len(learners)), False
    while not done:
        seen, _, done = env.step(_act(learners, seen, greedy=True))
    return [float(j.mean()) for j in np.split(env.figures().j, len(learners))]


def _act(learners: list[Learner], seen: Float32, greedy: bool = False) -> NDArray[np.int64]:
    """The actions (P, M, 3) of all pools, each learner's in its own part of them."""
    parts = zip(learners, np.split(seen, len(learners)), strict=True)
    return np.concatenate([learner.act(part, greedy) for learner, part in parts])
