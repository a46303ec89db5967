"""Clusters on which pods arrive one by one, run and end: many at once, each step one pod on every cluster.

Nodes fail and come back, latencies drift. Observations and allowed nodes are those of the real server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from rlscaler_core.placement.fragmentation import DEFAULT_TYPICAL, fragmentation
from rlscaler_core.placement.gpus import taken
from rlscaler_core.placement.mask import fits
from rlscaler_core.placement.policies import Policy, allowed
from rlscaler_core.placement.rules import used_share
from rlscaler_core.placement.types import MOST_GPUS, WHOLE_GPU, Bool, Float, Int, Nodes, Pods
from rlscaler_rl.placement.drawn import (
    MEAN_SLOTS,
    MOST_SLOTS,
    SLOT_S,
    Setting,
    copied,
    draw_nodes,
    draw_pods,
    residual_slots,
    said_lifetimes,
)
from rlscaler_rl.placement.thesis import PODS_PER_NODE

PREFILL_ROUNDS = 100
FAILED_SLOTS = 10


class Outcome(NamedTuple):
    """Outcome of a step, (clusters,) each."""

    reward: Float
    """Change of the episode's score, charged to the placement that causes it."""
    aim: Float
    """Reach of the scoring policy's aim after the placement: the score of contenders and checkpoints.

    EE: share of nodes without pods. LB: -4 times the standard deviation of the shares of requested CPU. EL: mean of
    EE's share, the density of used nodes and the latency. GPU: -fragmentation that the placement adds, in GPUs.
    """
    placed: Bool
    latency_met: Float
    """1 below the soft latency, .5 below the hard one, 0 above; 1 for pods without limits; NaN where not placed."""


class Placement:
    """Clusters in their steady state under pods placed at random; `pods` has the pods to be placed now."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting, self.rng = setting, np.random.default_rng(seed)
        self.nodes = Nodes._make(copied(column, setting.copies) for column in draw_nodes(setting, self.rng))
        shape = self.nodes.pods.shape
        self._size = self.nodes.allocatable.copy()
        self._back = np.zeros(shape, np.int64)
        self._ends = np.zeros((MOST_SLOTS, *shape, 3))
        self._gpu_ends = np.zeros((MOST_SLOTS, *shape, MOST_GPUS)) if setting.gpus else None
        self._last = np.zeros(shape, np.int64)
        """Slot in which the last pod of each node ends."""
        self._said_by_end = np.zeros((MOST_SLOTS, *shape))
        """The last end that those of a node's pods say which really end in a slot, in slots."""
        self._said = np.zeros(shape)
        """The last end that any pod of a node says."""
        self._clock, self._slot = 0.0, 0
        self._rows = np.arange(len(self._last))
        self._prefill()
        self.pods, self._slots = self._draw_pods(setting.clusters)

    def mask(self) -> Bool:
        """(clusters, nodes): where the pod may go."""
        return self._allowed(self.nodes)

    def step(self, node: Int) -> Outcome:
        """Place each cluster's pod on the node of this index, and go on to the next pod; -1 = refuse it.

        A node that does not take the pod refuses it, too.
        """
        rows, index = self._rows, np.maximum(node, 0)
        target = self._at(rows, index)
        placed = self._allowed(target)[:, 0] & (node >= 0)
        longer, lost = self._place(target, rows, index, placed)
        outcome = self._outcome(index, placed, longer, lost)
        self._clock += 1.0 / self.setting.arrivals_per_slot
        while self._slot < int(self._clock):
            self._next_slot()
        self.pods, self._slots = self._draw_pods(self.setting.clusters)
        return outcome

    def _allowed(self, nodes: Nodes) -> Bool:
        fitting = fits(nodes, self.pods)
        return allowed(nodes, self.pods, fitting) if self.setting.hard_refuses else fitting

    def _draw_pods(self, count: int) -> tuple[Pods, Int]:
        """`count` pods and their slots, and as many again for each further copy of the clusters."""
        pods, slots = draw_pods(self.setting, count, self.rng)
        copies = self.setting.copies
        return Pods._make(copied(column, copies) for column in pods), copied(slots, copies)

    def _drawn(self, draw: Callable[[tuple[int, int]], Float]) -> Float:
        """A number for each node, the same for copies of it."""
        return copied(draw((self.setting.clusters, self.setting.nodes)), self.setting.copies)

    def _at(self, rows: Int, index: Int) -> Nodes:
        """Copies of these nodes, each alone: (len(rows), 1)."""
        return Nodes._make(column[rows, index][:, None] for column in self.nodes)

    def _place(self, target: Nodes, rows: Int, index: Int, placed: Bool) -> tuple[Float, Float]:
        """Slots for which the node is longer in use, and the growth of its fragmentation in GPUs.

        one: the nodes of these rows and indices before the pods come, as `_at` copies them.
        """
        n = self.nodes
        share = np.concatenate([self.pods.requests, np.ones((len(rows), 1))], -1) * placed[:, None]
        end = self._slot + self._slots
        now = np.maximum(self._last[rows, index], self._slot)
        longer = np.maximum(end - now, 0) * placed
        self._last[rows, index] = np.where(placed, np.maximum(now, end), self._last[rows, index])
        lost = np.zeros(len(rows))
        if self._gpu_ends is not None:
            take = taken(target, self.pods)[:, 0] * placed[:, None]
            before = self._fragmentation(rows, index)
            n.gpu_free[rows, index] -= take
            self._gpu_ends[end % MOST_SLOTS, rows, index] += take
        n.requested[rows, index] += share[:, :2]
        n.pods[rows, index] += share[:, 2]
        self._ends[end % MOST_SLOTS, rows, index] += share
        self._believe(rows, index, end, placed)
        if self._gpu_ends is not None:
            lost = (self._fragmentation(rows, index) - before) / WHOLE_GPU
        self._tell(rows, index)
        return longer.astype(float), lost

    def _believe(self, rows: Int, index: Int, end: Int, placed: Bool) -> None:
        """Note when the pods say that they will end."""
        if not self.setting.lifetimes_known:
            return
        at = (end % MOST_SLOTS, rows, index)
        stated = (self._slot + self.pods.lifetime_s / SLOT_S) * placed
        self._said_by_end[at] = np.maximum(self._said_by_end[at], stated)
        self._said[rows, index] = np.maximum(self._said[rows, index], stated)

    def _fragmentation(self, rows: Int, index: Int) -> Float:
        n = self.nodes
        cpu = (n.allocatable - n.requested)[rows, index, 0]
        return fragmentation(cpu, n.gpu_free[rows, index], n.gpu_model[rows, index], DEFAULT_TYPICAL)

    def _outcome(self, index: Int, placed: Bool, longer: Float, lost: Float) -> Outcome:
        n, policy = self.nodes, self.setting.policy
        latency = n.latency_ms[self._rows, index]
        met = np.where(~(latency > self.pods.soft_ms), 1.0, np.where(~(latency > self.pods.hard_ms), 0.5, 0.0))
        in_use = (n.pods > 0).sum(-1)
        unused = 1.0 - in_use / self.setting.nodes
        met = np.where(placed, met, np.nan)
        hours = -longer / MEAN_SLOTS
        if policy is Policy.EE:
            aim, reward = unused, hours
        elif policy is Policy.LB:
            aim = -4.0 * used_share(n)[..., 0].std(-1)
            reward = aim
        elif policy is Policy.EL:
            dense = np.minimum(n.pods.sum(-1) / np.maximum(in_use, 1) / PODS_PER_NODE, 1.0)
            aim = (unused + dense + np.nan_to_num(met)) / 3.0
            reward = hours + 2.0 * np.nan_to_num(met)
        else:
            aim = reward = -lost
        return Outcome(reward - 1.0 * ~placed, aim, placed, met)

    def _next_slot(self) -> None:
        """Pods whose time is up leave, nodes fail and come back, latencies drift."""
        self._slot += 1
        n, at = self.nodes, self._slot % MOST_SLOTS
        gone = self._ends[at]
        n.requested[:] -= gone[..., :2]
        n.pods[:] -= gone[..., 2]
        gone[:] = 0.0
        if self.setting.lifetimes_known:
            self._said_by_end[at] = 0.0
            self._said = self._said_by_end.max(0)
        if self._gpu_ends is not None:
            n.gpu_free[:] += self._gpu_ends[at]
            self._gpu_ends[at] = 0.0
        self._fail()
        if self.setting.drift:
            moved = n.latency_ms * np.exp(self.setting.drift * self._drawn(self.rng.standard_normal))
            n.latency_ms[:] = np.clip(moved, 1.0, 500.0)
        self._tell(slice(None), slice(None))

    def _fail(self) -> None:
        n = self.nodes
        back = (self._back == self._slot) & (self._back > 0)
        n.allocatable[back] = self._size[back]
        chance = self.setting.failures_per_day * SLOT_S / 86_400.0
        down = (self._drawn(self.rng.random) < chance) & (n.allocatable[..., 0] > 0)
        if not down.any():
            return
        self._back[down] = self._slot + FAILED_SLOTS
        n.allocatable[down], n.requested[down], n.pods[down] = 0.0, 0.0, 0.0
        self._ends[:, down], self._last[down] = 0.0, self._slot
        self._said_by_end[:, down], self._said[down] = 0.0, 0.0
        if self._gpu_ends is not None:
            self._gpu_ends[:, down] = 0.0
            whole = np.arange(MOST_GPUS) < n.gpus[down][..., None]
            n.gpu_free[down] = np.where(whole, float(WHOLE_GPU), 0.0)

    def _tell(self, rows: Int | slice, index: Int | slice) -> None:
        """Write the expected time at which nodes will be empty, as far as scoring policies may know it."""
        left = np.maximum(self._said[rows, index] - self._slot, 0) * SLOT_S
        known = self.setting.lifetimes_known
        self.nodes.empty_in_s[rows, index] = np.where(self.nodes.pods[rows, index] > 0, left if known else np.nan, 0.0)

    def _prefill(self) -> None:
        """Fill every node to a random share around the load, with pods that are somewhere in their lives."""
        clusters, count = self.nodes.pods.shape
        rows, index = np.divmod(np.arange(clusters * count), count)
        aim = self.setting.load * self._drawn(lambda shape: self.rng.uniform(0.5, 1.3, shape))
        differing, copies = self.setting.clusters * count, self.setting.copies
        for _ in range(PREFILL_ROUNDS):
            self.pods, _ = self._draw_pods(differing)
            slots = residual_slots(differing, self.rng)
            self._slots = copied(slots, copies)
            stated = copied(said_lifetimes(self.setting, slots, self.rng), copies)
            self.pods = self.pods._replace(lifetime_s=stated)
            target = self._at(rows, index)
            full = target.requested[:, 0, 0] / target.allocatable[:, 0, 0]
            if self.setting.gpus:
                whole = np.maximum(target.gpus[:, 0] * WHOLE_GPU, 1.0)
                full = np.maximum(
                    full, np.where(target.gpus[:, 0] > 0, 1 - target.gpu_free[:, 0].sum(-1) / whole, full)
                )
            wanted = full < aim[rows, index]
            if not wanted.any():
                break
            self._place(target, rows, index, wanted & fits(target, self.pods)[:, 0])
