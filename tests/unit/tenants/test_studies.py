"""Training, evaluation and studies, end to end: a short training, its folder, and what is played with it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.decision.exceptions import ModelError
from rlscaler_rl.tenants import cli, hrac, studies
from rlscaler_rl.tenants.cli import tenants as command
from rlscaler_rl.tenants.compare import RIVALS, compare
from rlscaler_rl.tenants.draw import TEST_LOADS, TRAIN_LOADS, TUNE_LOADS, Request
from rlscaler_rl.tenants.environment import Setting, TenantsEnv
from rlscaler_rl.tenants.evaluate import Agents, _bids, arrangements, play_together
from rlscaler_rl.tenants.hrac import Options, Trained, train, train_together
from rlscaler_rl.tenants.picture import draw
from rlscaler_rl.tenants.signals import Loss
from tests.harness.arbiters import arbitrary_policies

SHORT = Options(tenants=2, pools=2, epochs=1, looks=1, look_pools=2, hidden=8, batch=8)
REQUEST = Request(2, 3, 1, 0.7, ("jobs_1", "random_1"), cpu=True, seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    trained = train(SHORT)
    assert len(trained.returns) == 1
    assert [epoch for epoch, _ in trained.curve] == [0, 1]
    path = tmp_path_factory.mktemp("trained")
    trained.save(path)
    return path


def test_no_load_that_is_tested_on_was_trained_or_chosen_on():
    assert not set(TEST_LOADS) & {*TRAIN_LOADS, *TUNE_LOADS}
    assert not set(TRAIN_LOADS) & set(TUNE_LOADS)


@pytest.mark.long
def test_agents_are_played_beside_the_rules(folder):
    names = {*RIVALS, "learned_0", "agents_0", "learned_1", "hindsight", "alone"}
    chosen = [one for one in arrangements([Agents(folder), Agents(folder)]) if one.name in names]
    table = compare(REQUEST, lambda text: None, chosen)
    rows = {row.name: row for row in table.rows}
    assert set(rows) == names
    assert rows["alone"].figures["jain"].mean == 1.0
    for row in rows.values():
        assert np.isfinite(row.figures["j"].mean)
    for name in ("learned_0", "agents_0", "hindsight"):
        assert rows[name].figures["allocated"].mean <= 100
    assert rows["learned_1"].pools == rows["learned_0"].pools


@pytest.mark.long
def test_a_study_trains_what_is_not_there_and_plays_it(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(studies.TRAINING, "roles", {"as it is": lambda options: options})
    first, said = studies.study_training("roles", SHORT, [0, 1], 3, tmp_path, lambda text: None), []
    assert [line.variant for line in first.lines] == ["forecast rule", "as it is"]
    assert first.lines[0].against is None
    for figure in (first.lines[1].j, first.lines[1].against):
        assert figure.low <= figure.mean <= figure.high
    assert len(studies.report(first)) == 3 + len(first.lines)
    assert [len(returns) for returns in first.returns.values()] == [SHORT.epochs]
    draw(first, tmp_path / "study.png")
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")
    again = studies.study_training("lambda", SHORT, [0, 1], 3, tmp_path, said.append)
    assert [text for text in said if "side by side" in text] == ["8 trainings of 1 epochs side by side"]
    assert next(line for line in again.lines if line.variant == "lambda 0.5").j == first.lines[1].j


def test_a_study_names_the_seeds_whose_checkpoint_is_untrained():
    study = studies.Study(
        name="lambda", seeds=[0, 1], epochs=3, pools=3, lines=[], untrained={"lambda 0.2": [1], "lambda 0.5": []}
    )
    assert studies.report(study)[-2:] == [
        "lambda 0.2: the checkpoint is the untrained one for seed 1",
        "lambda 0.5: the checkpoint is a trained one for every seed",
    ]


@pytest.mark.parametrize(
    ("curve", "untrained"), [([(0, 1.0), (1, 1.2), (2, 1.0)], True), ([(0, 1.0), (1, 0.9)], False)]
)
def test_a_folder_tells_whether_its_policies_are_untrained(curve, untrained, tmp_path):
    Trained(arbitrary_policies(5, 0.5), SHORT, 1.0, [0.0], curve).save(tmp_path)
    agents = Agents(tmp_path)
    assert agents.untrained is untrained


@pytest.mark.slow
def test_a_study_plays_trained_agents_with_information_lost(folder, monkeypatch):
    monkeypatch.setitem(studies.PLAYING, "information", {"half": (lambda request: request, Loss(0.5, "agent"))})
    done = studies.study_playing("information", [Agents(folder)], replace(SHORT, seed=0), 3, lambda text: None)
    assert [line.contender for line in done.lines] == ["weighted max-min", "all agents"]
    assert done.seeds == [0]


@pytest.mark.long
def test_trainings_side_by_side_come_to_what_each_comes_to_alone():
    roomy = replace(SHORT, tightness=10.0)  # no pod waits, so no order of pods is drawn
    several = [roomy, replace(roomy, seed=1), replace(roomy, seed=1, local=1.0)]
    for options, together in zip(several, train_together(several), strict=True):
        alone = train(options)
        assert together.options == options
        assert together.returns == pytest.approx(alone.returns, rel=1e-6)
        assert [j for _, j in together.curve] == pytest.approx([j for _, j in alone.curve], rel=1e-6)


def test_trainings_that_play_other_settings_are_refused():
    with pytest.raises(ValueError, match="train others apart"):
        train_together([SHORT, replace(SHORT, tightness=0.9)])


@pytest.mark.slow
def test_agents_side_by_side_are_played_as_each_is_alone(folder, tmp_path):
    other = tmp_path / "other"
    Trained(arbitrary_policies(5, 0.5), replace(SHORT, seed=5), 1.0, [0.0], [(0, 1.0)]).save(other)
    roomy = replace(REQUEST, tightness=10.0)
    several = [Agents(folder), Agents(other)]
    for agents, together in zip(several, play_together(several, roomy), strict=True):
        np.testing.assert_allclose(together.j, agents.play(roomy).j)


@pytest.mark.slow
def test_each_arbiter_bids_in_its_own_pools(folder, tmp_path):
    other = tmp_path / "other"
    Trained(arbitrary_policies(5, 0.5), replace(SHORT, seed=5), 1.0, [0.0], [(0, 1.0)]).save(other)
    several = [Agents(folder), Agents(other)]
    env = TenantsEnv(Setting(REQUEST))
    env.reset(REQUEST.seed, REQUEST.seed)
    found = np.split(_bids(several, env).factor, 2)
    for agents, factor in zip(several, found, strict=True):
        alone = TenantsEnv(Setting(REQUEST))
        alone.reset()
        pools = alone.pools
        expected = agents.arbiter.bids(pools.budgets, pools.members, pools.loans, pools.signals(alone.samples))
        np.testing.assert_array_equal(factor, expected.factor)
    assert not np.array_equal(*found), "or this test would not tell the two apart"


def test_the_command_trains_seeds_side_by_side_where_it_is_told_to(tmp_path, monkeypatch):
    policies, asked = arbitrary_policies(5, 0.5), []

    def instead(several, say):
        asked.extend(several)
        return [Trained(policies, options, 1.0, [0.0], [(0, 1.0)]) for options in several]

    monkeypatch.setattr(hrac, "train_together", instead)
    words = ["train", "--seed", "3", "--seed", "4", "--tightness", "0.6", "--no-cpu", "--tenants", "5"]
    done = CliRunner().invoke(command, [*words, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert [options.seed for options in asked] == [3, 4]
    for options in asked:
        assert options.acts == (True, False, True), "without a CPU pool its agent has nothing to do"
        request = options.setting.request
        assert (request.tightness, request.cpu, request.tenants) == (0.6, False, 5)
        assert Agents(tmp_path / f"seed-{options.seed}").options["seed"] == options.seed


@pytest.mark.slow
def test_as_json_standard_output_has_the_table_of_agents_alone(folder, tmp_path):
    words = ["evaluate", "--model", str(folder), "--tenants", "2", "--pools", "3", "--out", str(tmp_path)]
    done = CliRunner().invoke(command, [*words, "-o", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads((tmp_path / "table.json").read_text())


@pytest.mark.slow
def test_as_json_standard_output_has_the_study_alone(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(studies.PLAYING, "information", {"half": (lambda request: request, Loss(0.5, "agent"))})
    words = ["study", "information", "--model", str(folder), "--pools", "3", "--out", str(tmp_path), "-o", "json"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads((tmp_path / "information" / "study.json").read_text())
    assert "half: J" in done.stderr
    assert (tmp_path / "information" / "study.png").read_bytes().startswith(b"\x89PNG")


def test_the_names_of_studies_are_those_of_the_command():
    assert (tuple(studies.TRAINING), tuple(studies.PLAYING)) == (cli.TRAINING, cli.PLAYING)


def test_a_folder_without_agents_is_named(tmp_path):
    with pytest.raises(ModelError, match="tenants train"):
        Agents(tmp_path)
    done = CliRunner().invoke(command, ["evaluate", "--model", str(tmp_path)])
    assert done.exit_code == 2
    assert "tenants train" in done.output
