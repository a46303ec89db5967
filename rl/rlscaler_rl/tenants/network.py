"""The networks of agents that share pools: a policy for each role, and critics that see all slots, for training only.

Everything is (P, M, 3, ...) for P pools, M tenants and three slots, with `there` (P, M), False for a tenant that is
absent: it is neither attended to nor counted, so pools of any number of tenants fit in one batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from rlscaler_core.arbiter.features import FEATURES
from rlscaler_core.arbiter.learned import INPUTS, OUTPUT
from rlscaler_rl.tenants.environment import ACTIONS, AS_THE_RULE, SLOTS, TENANT_WIDTH, WIDTH

Attention = Literal["off", "dense", "grouped"]
"""`dense`: to every other slot of the pool, which costs the square of their number. `grouped`: to the other slots of
the same tenant and to one summary of each slot of all other tenants, which costs their number. `off`: to none."""

ARBITER = SLOTS.index("arbiter")
FAVOURED = 2.0
"""Logit by which an untrained policy prefers to do as the rule does."""

OPSET, IR = 18, 9


class RolePolicy(nn.Module):
    """Logits (P, M, 5) for observations (P, M, WIDTH).

    Members of a pool see each other: with `together` the mean over the members' hidden layers is added to each.
    """

    def __init__(self, hidden: int, together: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, hidden), nn.Linear(hidden, hidden)
        self.mean = nn.Linear(hidden, hidden, bias=False) if together else None
        self.logits = nn.Linear(hidden, ACTIONS)
        nn.init.zeros_(self.logits.weight)
        nn.init.zeros_(self.logits.bias)
        with torch.no_grad():
            self.logits.bias[AS_THE_RULE] = FAVOURED

    def forward(self, seen: Tensor, there: Tensor) -> Tensor:
        h = torch.relu(self.first(seen))
        together = 0.0 if self.mean is None else self.mean(_mean(h, there))[:, None]
        out: Tensor = self.logits(torch.relu(self.second(h) + together))
        return out


class ByRole(nn.Module):
    """(P, M, 3, a) to (P, M, 3, b): each slot by the network of its role, one network for each role."""

    def __init__(self, roles: tuple[str, ...], make: Callable[[], nn.Module]) -> None:
        super().__init__()
        names = list(dict.fromkeys(roles))
        self._number = [names.index(role) for role in roles]
        self.nets = nn.ModuleList([make() for _ in names])

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.nets[number](x[:, :, slot]) for slot, number in enumerate(self._number)], dim=2)


class Policies(nn.Module):
    """The policies of all slots, (P, M, 3, 5): one for each role, shared by the slots that have it."""

    def __init__(self, roles: tuple[str, ...], hidden: int) -> None:
        super().__init__()
        names = list(dict.fromkeys(roles))
        self._number = [names.index(role) for role in roles]
        shares = [name == roles[ARBITER] and roles.count(name) == 1 for name in names]
        self.nets = nn.ModuleList([RolePolicy(hidden, together) for together in shares])

    def of(self, slot: int) -> RolePolicy:
        """The policy of a slot."""
        policy: RolePolicy = self.nets[self._number[slot]]
        return policy

    def forward(self, seen: Tensor, there: Tensor) -> Tensor:
        return torch.stack([self.of(slot)(seen[:, :, slot], there) for slot in range(len(self._number))], dim=2)


class Critic(nn.Module):
    """Values (P, M, 3, 5) of every slot's actions, given the observations and actions of all others.

    A slot's own action is no input of its own values, so they are exact for all five at once (Iqbal & Sha 2019, MAAC).
    They are the sum of a value of the observation and an advantage of each action (Z. Wang et al., Dueling Network
    Architectures, ICML 2016), at first zero. While the critic learns how much is lost in a pool, all five move
    together; without that the actions that were taken seldom would lag behind and look best.
    """

    def __init__(self, roles: tuple[str, ...], hidden: int, attention: Attention) -> None:
        super().__init__()
        self.attention = attention
        self.own = ByRole(roles, lambda: nn.Linear(WIDTH, hidden))
        self.pair = ByRole(roles, lambda: nn.Linear(WIDTH + ACTIONS, hidden))
        self.query, self.key, self.value = (nn.Linear(hidden, hidden, bias=False) for _ in range(3))
        self.state = ByRole(roles, lambda: _head(hidden, 1))
        self.advantage = ByRole(roles, lambda: _zero_at_first(_head(hidden, ACTIONS)))

    def forward(self, seen: Tensor, actions: Tensor, there: Tensor) -> Tensor:
        own = torch.relu(self.own(seen))
        context = torch.zeros_like(own)
        if self.attention != "off":
            pairs = torch.cat([seen, functional.one_hot(actions, ACTIONS).to(seen)], dim=-1)
            others = torch.relu(self.pair(pairs))
            attend = _dense if self.attention == "dense" else _grouped
            context = attend(self.query(own), self.key, self.value, others, there)
        both = torch.cat([own, context], dim=-1)
        advantage = self.advantage(both)
        out: Tensor = self.state(both) + advantage - advantage.mean(-1, keepdim=True)
        return out


def _head(hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, out))


def _zero_at_first(head: nn.Sequential) -> nn.Sequential:
    for weights in head[-1].parameters():
        nn.init.zeros_(weights)
    return head


class Value(nn.Module):
    """The value (P,) of a whole pool: the return of the mean reward of its tenants."""

    def __init__(self, roles: tuple[str, ...], hidden: int) -> None:
        super().__init__()
        self.own = ByRole(roles, lambda: nn.Linear(WIDTH, hidden))
        self.head = nn.Sequential(nn.Linear(len(roles) * hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, seen: Tensor, there: Tensor) -> Tensor:
        own = torch.relu(self.own(seen))
        out: Tensor = self.head(_mean(own.flatten(2), there))[:, 0]
        return out


def _mean(h: Tensor, there: Tensor) -> Tensor:
    """The mean (P, ...) over the tenants that are there."""
    mask = there[..., None].to(h)
    return (h * mask).sum(1) / mask.sum(1).clamp(min=1.0)


def _dense(query: Tensor, key: nn.Module, value: nn.Module, others: Tensor, there: Tensor) -> Tensor:
    p, m, slots, hidden = others.shape
    flat = others.reshape(p, m * slots, hidden)
    allowed = there.repeat_interleave(slots, dim=1)[:, None, :] & ~torch.eye(m * slots, dtype=torch.bool)
    # A slot that is alone attends to itself: a row without any key would be NaN.
    alone = ~allowed.any(-1, keepdim=True) & torch.eye(m * slots, dtype=torch.bool)
    attended = functional.scaled_dot_product_attention(
        query.reshape(p, m * slots, hidden), key(flat), value(flat), attn_mask=allowed | alone
    )
    return attended.reshape(p, m, slots, hidden)


def _grouped(query: Tensor, key: nn.Module, value: nn.Module, others: Tensor, there: Tensor) -> Tensor:
    _p, _m, slots, hidden = others.shape
    mask = there[:, :, None, None].to(others)
    masked = others * mask
    rest = (mask.sum(1, keepdim=True) - mask).clamp(min=1.0)
    summary = (masked.sum(1, keepdim=True) - masked) / rest  # (P, M, 3, H) of all other tenants
    keys = torch.cat([others, summary], dim=2)  # (P, M, 6, H): three slots of the tenant, three summaries
    scores = torch.einsum("pmsh,pmkh->pmsk", query, key(keys)) / hidden**0.5
    itself = torch.cat([torch.eye(slots), torch.zeros(slots, slots)], dim=1).bool()
    weights = scores.masked_fill(itself, float("-inf")).softmax(-1)
    return torch.einsum("pmsk,pmkh->pmsh", weights, value(keys))


def arbiter_onnx(policies: Policies) -> bytes:
    """The graph of the arbiter's policy, as `rlscaler_core.arbiter.learned` reads it."""
    return _graph("arbiter", policies.of(ARBITER), len(FEATURES))


def tenant_onnx(policies: Policies, slot: int) -> bytes:
    """The graph of the policy of a tenant's slot, from `members` (N, 1, TENANT_WIDTH) and a `mask` of ones."""
    return _graph(SLOTS[slot], policies.of(slot), TENANT_WIDTH)


def _graph(name: str, policy: RolePolicy, columns: int) -> bytes:
    """From `members` (B, K, columns) and `mask` (B, K, 1) to `logits` (B, K, 5)."""
    members, mask = INPUTS
    constants: dict[str, NDArray[Any]] = {"axis": np.array([1], np.int64), "one": np.array(1.0, np.float32)}
    for layer in ("first", "second", "logits"):
        linear = getattr(policy, layer)
        constants |= {f"{layer}_w": linear.weight.detach().numpy().T.copy(), f"{layer}_b": linear.bias.detach().numpy()}
    constants["first_w"] = constants["first_w"][:columns].copy()
    nodes = [
        helper.make_node("MatMul", [members, "first_w"], ["a"]),
        helper.make_node("Add", ["a", "first_b"], ["b"]),
        helper.make_node("Relu", ["b"], ["h"]),
        helper.make_node("MatMul", ["h", "second_w"], ["c"]),
        helper.make_node("Add", ["c", "second_b"], ["each"]),
    ]
    if policy.mean is not None:
        constants["mean_w"] = policy.mean.weight.detach().numpy().T.copy()
        nodes += [
            helper.make_node("Mul", ["h", mask], ["masked"]),
            helper.make_node("ReduceSum", ["masked", "axis"], ["sum"], keepdims=1),
            helper.make_node("ReduceSum", [mask, "axis"], ["number"], keepdims=1),
            helper.make_node("Max", ["number", "one"], ["count"]),
            helper.make_node("Div", ["sum", "count"], ["average"]),
            helper.make_node("MatMul", ["average", "mean_w"], ["together"]),
            helper.make_node("Add", ["each", "together"], ["both"]),
        ]
    nodes += [
        helper.make_node("Relu", ["each" if policy.mean is None else "both"], ["g"]),
        helper.make_node("MatMul", ["g", "logits_w"], ["l"]),
        helper.make_node("Add", ["l", "logits_b"], [OUTPUT]),
    ]
    graph = helper.make_graph(
        nodes,
        name,
        [
            helper.make_tensor_value_info(members, TensorProto.FLOAT, ["budgets", "members", columns]),
            helper.make_tensor_value_info(mask, TensorProto.FLOAT, ["budgets", "members", 1]),
        ],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["budgets", "members", ACTIONS])],
        [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
