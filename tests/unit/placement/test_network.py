"""The network: order of nodes, masks, ONNX beside torch, files that are refused, and that it learns."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from rlscaler_core.decision.exceptions import ContractMismatchError, ModelError
from rlscaler_core.placement.actor import PlacementActor
from rlscaler_core.placement.features import COMMON, scaled
from rlscaler_core.placement.policies import Policy
from rlscaler_core.placement.rules import RULES
from rlscaler_rl.placement.dqn import Memory, Options, acting, train
from rlscaler_rl.placement.drawn import Setting
from rlscaler_rl.placement.environment import Placement
from rlscaler_rl.placement.network import DeepSets
from rlscaler_rl.placement.play import network, play, random_node, score

SMALL = Options(Policy.EE, steps=2000, nodes=(4, 6), clusters=8, batch=32, looks=2)


@pytest.fixture(scope="module")
def trained():
    return train(SMALL)


@pytest.fixture
def folder(trained, tmp_path):
    trained.save(tmp_path)
    return tmp_path


def random_net(seed: int, **options) -> DeepSets:
    torch.manual_seed(seed)
    net = DeepSets(len(COMMON), **options)
    torch.nn.init.normal_(net.advantage.weight, std=1.0)
    return net


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_values_follow_the_order_of_the_nodes(count: int, dueling: bool) -> None:
    net, x = random_net(count, dueling=dueling), torch.randn(3, count, len(COMMON))
    order = torch.randperm(count)
    assert torch.allclose(net(x)[:, order], net(x[:, order]), atol=1e-4)


def test_an_untrained_network_ranks_as_the_rule() -> None:
    net, x = DeepSets(len(COMMON)), torch.rand(5, 9, len(COMMON))
    assert (net(x).argsort(1) == x[..., 0].argsort(1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_only_what_the_mask_allows_is_placed(seed: int) -> None:
    played = play(acting(random_net(seed), Policy.EE), Setting(Policy.EE, 6, 2, load=0.3), seed, 50)
    assert (played.refused == 0).all(), "there is room, so a network that names a forbidden node would show here"


@pytest.mark.slow
def test_onnx_gives_what_torch_gives(trained, folder) -> None:
    actor = PlacementActor.load(folder, Policy.EE)
    net = trained.net
    for count in (1, 5, 300):
        x = torch.rand(1, count, len(COMMON))
        with torch.no_grad():
            above = net.advantage(net.body(x))[..., 0] + net.by_rule * x[..., 0]
        np.testing.assert_allclose(actor.values(x[0].numpy()), above[0].numpy(), atol=1e-4)
    setting = Setting(Policy.EE, 6, 4)
    assert score(Policy.EE, play(network(actor), setting, 1, 60)).mean() == pytest.approx(
        score(Policy.EE, play(acting(net, Policy.EE), setting, 1, 60)).mean(), abs=0.02
    )


@pytest.mark.slow
def test_a_network_for_something_else_is_refused(folder) -> None:
    manifest = json.loads((folder / "EE.json").read_text())
    (folder / "EE.json").write_text(json.dumps(manifest | {"columns": manifest["columns"][:-1]}))
    with pytest.raises(ContractMismatchError, match="train it again"):
        PlacementActor.load(folder, Policy.EE)
    (folder / "EE.json").write_text(json.dumps(manifest | {"digest": "0" * 64}))
    with pytest.raises(ModelError, match="copy both files again"):
        PlacementActor.load(folder, Policy.EE)
    (folder / "EE.json").write_text("{")
    with pytest.raises(ModelError, match="no manifest"):
        PlacementActor.load(folder, Policy.EE)
    with pytest.raises(ModelError, match=r"LB\.json: No such file"):
        PlacementActor.load(folder, Policy.LB)


@pytest.mark.slow
def test_a_network_is_given_the_rule_that_it_began_as(tmp_path) -> None:
    options = Options(
        Policy.EE, steps=256, nodes=(3,), clusters=16, looks=1, lifetimes_known=True, rule="least-extension"
    )
    train(options).save(tmp_path)
    actor = PlacementActor.load(tmp_path, Policy.EE)
    assert actor.manifest.rule == "least-extension"
    env = Placement(Setting(Policy.EE, 8, 4, lifetimes_known=True), 5)
    among = env.mask()
    for rule, same in (("least-extension", True), ("pack", False)):
        column = scaled(RULES[rule](env.nodes, env.pods), among).astype(np.float32)
        assert np.array_equal(actor.seen(env.nodes, env.pods, among)[..., 0], column) == same
    manifest = json.loads((tmp_path / "EE.json").read_text())
    (tmp_path / "EE.json").write_text(json.dumps(manifest | {"rule": "spread"}))
    with pytest.raises(
        ContractMismatchError, match=r"spread, which is none of EE \(pack, least-extension, pack-and-extension\)"
    ):
        PlacementActor.load(tmp_path, Policy.EE)


@pytest.mark.slow
def test_it_learns_without_the_rule() -> None:
    options = Options(Policy.LB, steps=12_000, nodes=(6,), clusters=16, by_rule=0.0, looks=3, gamma=0.5, batch=64)
    found = train(options)
    setting = Setting(Policy.LB, 12, 24)
    learned = play(acting(found.net, Policy.LB), setting, 50, 200).uneven.mean()
    assert learned < 0.8 * play(random_node(), setting, 50, 200).uneven.mean()
    assert len(found.run.curve) >= 3


def test_memory_gives_what_follows() -> None:
    memory = Memory(4, 2, 3, 5)
    for step in range(7):
        seen = np.full((2, 3, 5), float(step), np.float32)
        memory.add(seen, np.ones((2, 3), bool), np.array([0, -1]), np.array([float(step), 0.0]), np.zeros(2, bool))
    seen, action, reward, then, _ = memory.draw(200, np.random.default_rng(0))
    assert 0 < len(seen) < 200, "steps that placed nothing are left out"
    assert (then[:, 0, 0] - seen[:, 0, 0] == 1).all()
    assert (reward == seen[:, 0, 0]).all()
    assert (action == 0).all()
    assert set(seen[:, 0, 0].tolist()) == {3.0, 4.0, 5.0}
