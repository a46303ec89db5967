"""Ideas are trained once, play the same days, and are compared with the default seed by seed."""

import json

import pytest
from click.testing import CliRunner

from rlscaler_research.ablation.cli import ablate
from rlscaler_research.ablation.study import BASE, IDEAS, Idea, markdown
from rlscaler_rl.evaluation.days import cli as command
from rlscaler_rl.evaluation.days.table import FILE, DayTable
from rlscaler_rl.training import validation
from rlscaler_rl.training.train import train
from tests.unit.days.made_up import day_table, load

ORIGINS = (2.0, 4.0, 8.0)
"""J of the forecast rule on a load of each of three origins."""


BRIEF = {
    BASE: Idea("few", environment={"history_hours": 0, "envs": 8}, agent={"imitation_rounds": 0}),
    "units-256": Idea("fewer", environment={"history_hours": 0, "envs": 4}, agent={"imitation_rounds": 0}),
}
"""Ideas that are trained within seconds."""


def test_every_idea_is_a_configuration_of_its_own():
    configurations = {idea.config(1).model_dump_json() for idea in IDEAS.values()}
    assert len(configurations) == len(IDEAS)


def scaled(factor: float) -> tuple[float, ...]:
    return tuple(factor * j for j in ORIGINS)


def test_differences_are_paired_by_seed_and_take_the_networks_of_both_seeds():
    networks = {BASE: {1: "default, seed 1", 2: "default, seed 2"}, "stack-4": {1: "4, seed 1"}, "plain": {2: "plain"}}
    table = day_table(
        {
            "rule": ORIGINS,
            "default, seed 1": scaled(1.5),
            "default, seed 2": scaled(1.1),
            "4, seed 1": scaled(1.65),
            "plain": scaled(1.0),
        }
    )
    base, stack, plain = list(markdown(table, networks))[2:]
    assert "| default | the configuration of `rlscaler train` | 2 |  |  | +30.0 [" in base
    assert "| 1 | +10.0 [+10.0, +10.0] | loss | +65.0 [+65.0, +65.0] | loss |" in stack
    assert "| 1 | -9.1 [-9.1, -9.1] | win | +0.0 [+0.0, +0.0] | undecided |" in plain


def test_an_idea_without_a_seed_of_the_default_has_no_difference_from_it():
    table = day_table({"rule": ORIGINS, "default, seed 1": scaled(1.5), "plain": scaled(1.2)})
    plain = list(markdown(table, {BASE: {1: "default, seed 1"}, "plain": {2: "plain"}}))[-1]
    assert "| 1 |  |  | +20.0 [+20.0, +20.0] | loss |" in plain


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a training of one update of two ideas, and the arguments that ask for it."""
    folder = tmp_path_factory.mktemp("ablation")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"CONDITIONS": ((30.0, 60, True),), "EPISODES": 1, "HISTORY_HOURS": 0.2}.items():
            patch.setattr(validation, name, value)
        validation.known_services.cache_clear()
        for idea in BRIEF:
            train(BRIEF[idea].config(1), folder / idea / "seed_1", progress=False)
    validation.known_services.cache_clear()
    return folder, ["run", *BRIEF, "--seeds", "1", "--steps", "1", "--out", str(folder)]


def test_networks_that_are_trained_play_beside_the_autoscalers_and_are_not_trained_again(trained, monkeypatch):
    folder, call = trained
    for name, idea in BRIEF.items():
        monkeypatch.setitem(IDEAS, name, idea)
    monkeypatch.setattr(command, "_load", lambda name, capacity, share, folder: load(name, 0.2 * capacity))
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*/seed_1/*")}
    answer = CliRunner().invoke(ablate, [*call, "--loads", "a, b"])
    assert answer.exit_code == 0, answer.output
    assert "| units-256 | fewer | 1 | " in answer.output
    table = DayTable.model_validate(json.loads((folder / FILE).read_text()))
    assert set(table.networks) == {"default, seed 1", "units-256, seed 1"}
    assert {"rule", "hpa"} < {score.contender for score in table.scores}
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/seed_1/*")} == before


def test_a_training_of_another_configuration_is_not_taken_for_the_idea(trained):
    answer = CliRunner().invoke(ablate, [*trained[1], "--loads", "steady_20"])
    assert answer.exit_code == 1
    assert "environment.envs was 8 and is 512 now" in answer.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "magic"], "magic: no such idea; there are default"),
        (["run", "--seeds", "x"], "write 1-5 or 1,3,7"),
        (["run", "--seeds", "5-1"], "write 1-5 or 1,3,7"),
        (["run", "--seeds", "1-"], "write 1-5 or 1,3,7"),
        (["run", "--loads", "nowhere"], "nowhere"),
    ],
)
def test_the_command_names_what_it_does_not_know(arguments, said, tmp_path):
    refused = CliRunner().invoke(ablate, [*arguments, "--out", str(tmp_path / "out")])
    assert refused.exit_code != 0
    assert said in refused.output
    assert not (tmp_path / "out").exists()
