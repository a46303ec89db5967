"""The study keeps what it measured, and its table says no more than the seeds do."""

import json

import pytest
from click.testing import CliRunner

from rlscaler_research.ablation import study
from rlscaler_research.ablation.cli import ablate
from rlscaler_research.ablation.study import (
    BASE,
    IDEAS,
    IdeaRun,
    current,
    keep,
    lines,
    markdown,
    read,
    train_and_score,
)
from rlscaler_rl.training import validation


@pytest.fixture(scope="module", autouse=True)
def _brief_validation():
    """Validation of seconds, on every workload."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"CONDITIONS": ((30.0, 60, True),), "EPISODES": 1, "HISTORY_HOURS": 0.2}.items():
            patch.setattr(validation, name, value)
        validation.known_services.cache_clear()
        study.probe.cache_clear()
        yield
    validation.known_services.cache_clear()
    study.probe.cache_clear()


def record(idea: str, seed: int, j: float) -> dict:
    one = IdeaRun(idea, seed)
    return {
        "idea": idea,
        "seed": seed,
        "steps": one.steps,
        "key": one.key,
        "probe": study.probe(),
        "mean": {"j": j, "cost": j, "late_percent": 0.0},
    }


def test_every_idea_is_a_configuration_of_its_own():
    keys = {IdeaRun(name, 1).key for name in IDEAS}
    assert len(keys) == len(IDEAS)
    assert IdeaRun(BASE, 1).key != IdeaRun(BASE, 2).key


def test_only_results_of_this_meter_and_this_configuration_count(tmp_path):
    good, other = record(BASE, 1, 5.0), record(BASE, 2, 5.0) | {"probe": "another meter"}
    keep([other, good], tmp_path / "results.json")
    kept = read(tmp_path / "results.json")
    assert kept == [good, other]
    assert list(current(kept, [IdeaRun(BASE, 1), IdeaRun(BASE, 2), IdeaRun("stack-4", 1)])) == [IdeaRun(BASE, 1)]


def test_differences_are_paired_by_seed():
    rough = [0.0, 3.0, -2.0]
    results = {IdeaRun(BASE, seed): record(BASE, seed, 6 + rough[seed]) for seed in range(3)}
    results |= {IdeaRun("stack-4", seed): record("stack-4", seed, 7 + rough[seed] + 0.01 * seed) for seed in range(3)}
    results |= {IdeaRun("stack-20", 0): record("stack-20", 0, 5.5)}
    made = {line.idea: line for line in lines(results)}
    assert made["stack-4"].verdict == "worse"
    assert made["stack-4"].difference == pytest.approx(1.01)
    assert made["stack-20"].verdict == "", "one seed decides nothing"
    assert made[BASE].verdict == ""
    assert "| stack-4 | 4 observations instead of 12 | 3 | 7.34 ± 2.5" in markdown(lines(results))


def test_a_run_is_scored_on_all_workloads(tmp_path, monkeypatch):
    brief = study.Idea("no past", environment={"history_hours": 0}, agent={"imitation_rounds": 0})
    monkeypatch.setitem(IDEAS, "no-imitation", brief)
    found = train_and_score(IdeaRun("no-imitation", 1, steps=1))
    assert found["steps"] >= 1
    assert found["mean"]["j"] == pytest.approx(sum(row["j"] for row in found["workloads"].values()) / 8, abs=1e-3)
    keep([found], tmp_path / "results.json")
    assert json.loads((tmp_path / "results.json").read_text()) == [found]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "magic"], "magic: no such idea; there are default"),
        (["run", "--seeds", "x"], "write 1-5 or 1,3,7"),
        (["run", "--seeds", "5-1"], "write 1-5 or 1,3,7"),
        (["run", "--seeds", "1-"], "write 1-5 or 1,3,7"),
    ],
)
def test_the_command_names_what_it_does_not_know(arguments, said):
    refused = CliRunner().invoke(ablate, arguments)
    assert refused.exit_code == 2
    assert said in refused.output
