"""Training, evaluation and studies, end to end: a short training, its folder, and what is played with it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from rlscaler_core.decision.exceptions import ModelError
from rlscaler_rl.tenants import cli, studies
from rlscaler_rl.tenants.cli import tenants as command
from rlscaler_rl.tenants.compare import RIVALS, compare
from rlscaler_rl.tenants.draw import TEST_LOADS, TRAIN_LOADS, TUNE_LOADS, Request
from rlscaler_rl.tenants.evaluate import Agents, arrangements
from rlscaler_rl.tenants.hrac import Options, train
from rlscaler_rl.tenants.signals import Loss

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


def test_agents_are_played_beside_the_rules(folder):
    names = {*RIVALS, "learned", "agents", "hindsight", "alone"}
    chosen = [one for one in arrangements(Agents(folder)) if one.name in names]
    table = compare(REQUEST, lambda text: None, chosen)
    rows = {row.name: row for row in table.rows}
    assert set(rows) == names
    assert rows["alone"].figures["jain"].mean == 1.0
    for row in rows.values():
        assert np.isfinite(row.figures["j"].mean)
    for name in ("learned", "agents", "hindsight"):
        assert rows[name].figures["allocated"].mean <= 100


def test_a_study_trains_what_is_not_there_and_plays_it(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(studies.TRAINING, "roles", {"as it is": lambda options: options})
    (tmp_path / "as-it-is-0").symlink_to(folder)
    said: list[str] = []
    done = studies.study_training("roles", SHORT, [0], 3, tmp_path, said.append)
    assert [line.variant for line in done.lines] == ["forecast rule", "as it is"]
    assert not any(text.startswith("roles") for text in said), "what lies there already is not trained again"
    for line in done.lines:
        assert line.j.low <= line.j.mean <= line.j.high
    assert len(list(studies.markdown(done))) == 2 + len(done.lines)


def test_a_study_plays_trained_agents_with_information_lost(folder, monkeypatch):
    monkeypatch.setitem(studies.PLAYING, "information", {"half": (lambda request: request, Loss(0.5, "agent"))})
    done = studies.study_playing("information", [Agents(folder)], replace(SHORT, seed=0), 3, lambda text: None)
    assert [line.contender for line in done.lines] == ["weighted max-min", "all agents"]
    assert done.seeds == [0]


def test_as_json_standard_output_has_the_table_of_agents_alone(folder, tmp_path):
    words = ["evaluate", "--model", str(folder), "--tenants", "2", "--pools", "3", "--out", str(tmp_path)]
    done = CliRunner().invoke(command, [*words, "-o", "json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads((tmp_path / "table.json").read_text())


def test_as_json_standard_output_has_the_study_alone(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(studies.PLAYING, "information", {"half": (lambda request: request, Loss(0.5, "agent"))})
    words = ["study", "information", "--model", str(folder), "--pools", "3", "--out", str(tmp_path), "-o", "json"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads((tmp_path / "information" / "study.json").read_text())
    assert "half: J" in done.stderr


def test_the_names_of_studies_are_those_of_the_command():
    assert (tuple(studies.TRAINING), tuple(studies.PLAYING)) == (cli.TRAINING, cli.PLAYING)


def test_a_folder_without_agents_is_named(tmp_path):
    with pytest.raises(ModelError, match="tenants train"):
        Agents(tmp_path)
    done = CliRunner().invoke(command, ["evaluate", "--model", str(tmp_path)])
    assert done.exit_code == 2
    assert "tenants train" in done.output
