"""What is kept, what is found again, and what makes it out of date."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from rlscaler_rl.evaluation.episodes import digest
from rlscaler_rl.evaluation.errors import EvaluationError
from rlscaler_rl.evaluation.lineup import lineup
from rlscaler_rl.evaluation.tuning import cache, command
from rlscaler_rl.evaluation.tuning.cache import Record, Tuned, load, save
from rlscaler_rl.evaluation.tuning.cli import tune as tune_command
from rlscaler_rl.evaluation.tuning.command import outdated, refresh, stale
from rlscaler_rl.evaluation.tuning.contenders import CONTENDERS
from rlscaler_rl.evaluation.tuning.score import probe, tune_part
from rlscaler_rl.evaluation.tuning.search import grid
from rlscaler_rl.evaluation.tuning.tune import SearchTask, search_tasks, tune
from rlscaler_rl.simulation.episode import run

QUIET = Console(quiet=True)
SMALL = {"budget": 6, "finalists": 1, "episodes": 2}
PROBE = [4.0, 5.0]


def record(workload: str | None, **changes: Any) -> Record:
    """A record of contender `keda` that is current; a search is never better than J = 1."""
    columns: dict[str, Any] = {
        "contender": "keda",
        "workload": workload,
        "found": CONTENDERS["keda"].default,
        "j": 1.0,
        "default_j": 2.0,
        "trials": 6,
        "episodes": 2,
        "loads": digest(tune_part(workload, None, 2))[:12],
        "space": cache.space_digest(CONTENDERS["keda"]),
    }
    return Record(**(columns | changes))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A tuning of one contender, for all loads and for one of its own."""
    path = tmp_path_factory.mktemp("tuned") / "tuned.json"
    save(Tuned().merged([record(None), record("ramp")], {"keda": PROBE}), path)
    return path


@pytest.fixture(autouse=True)
def searches(monkeypatch):
    """Searches and probes take seconds; here each finds J = 1."""
    monkeypatch.setattr(command, "probe", lambda tunable: PROBE)
    monkeypatch.setattr(command, "tune", lambda task, known: record(task.workload))


def chosen(**changes):
    return [SearchTask("keda", "ramp", **{**SMALL, **changes})]


def probes(path):
    return load(path).probes


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ramp", None])
def test_tuning_never_ends_up_worse_than_the_default(name):
    tuned = tune(SearchTask("keda", name, **SMALL))
    assert tuned.j <= tuned.default_j
    assert tuned.trials == 6


@pytest.mark.slow
def test_a_probe_has_figures_of_both_levels():
    assert np.isfinite(probe(CONTENDERS["keda"])).all()


def test_what_is_current_is_not_tuned_again(file):
    before = file.read_text()
    assert not outdated(chosen(), load(file), QUIET)
    refresh(chosen(), file, QUIET)
    assert file.read_text() == before


def test_a_better_finding_under_the_same_conditions_stays(file, tmp_path):
    path = tmp_path / "tuned.json"
    best = load(file).find(("keda", "ramp", None)).model_copy(update={"j": 0.5})
    save(load(file).merged([best], {}), path)
    refresh(chosen(), path, QUIET, force=True)
    assert load(path).find(best.key) == best

    save(load(file).merged([best.model_copy(update={"loads": "of other episodes"})], {}), path)
    refresh(chosen(), path, QUIET, force=True)
    assert load(path).find(best.key).j > 0.5


@pytest.mark.parametrize(
    ("task", "change", "reason"),
    [
        (SearchTask("keda", "spike", **SMALL), {}, "not tuned yet"),
        (SearchTask("keda", "ramp", budget=9, finalists=1, episodes=2), {}, "tuned with 6 trials"),
        (SearchTask("keda", "ramp", budget=6, finalists=1, episodes=3), {}, "the episodes have changed"),
        (SearchTask("keda", "ramp", **SMALL), {"space": "0" * 12}, "the search space has changed"),
    ],
)
def test_what_makes_a_record_stale(file, task, change, reason):
    kept = load(file)
    records = [one.model_copy(update=change) for one in kept.records]
    found = stale([task], Tuned(probes=kept.probes, records=records), kept.probes)
    assert found == {task: reason}


def test_a_space_that_was_played_whole_needs_no_more_trials(file):
    known = load(file).find(("keda", "ramp", None))
    points = len(grid(CONTENDERS["static"].space, 400))
    changes = {"contender": "static", "space": cache.space_digest(CONTENDERS["static"]), "trials": points}
    static = known.model_copy(update=changes)
    task = SearchTask("static", "ramp", budget=400, finalists=1, episodes=2)
    assert not stale([task], Tuned(probes={"static": [1.0]}, records=[static]), {"static": [1.0]})


def test_a_changed_meter_makes_everything_of_a_contender_stale(file):
    kept = load(file)
    moved = {"keda": [1.01 * j for j in kept.probes["keda"]]}
    assert set(stale(chosen(), kept, moved).values()) == {"the meter or the contender has changed"}
    noise = {"keda": [j * (1 + 1e-6) for j in kept.probes["keda"]]}
    assert not stale(chosen(), kept, noise)


def test_one_new_record_does_not_make_the_others_of_a_moved_contender_current(file):
    kept = load(file)
    moved = {"keda": [1.01 * j for j in kept.probes["keda"]]}
    ramp = kept.find(("keda", "ramp", None))
    after = kept.merged([ramp], moved)
    assert after.find(ramp.key) == ramp
    both = [*chosen(), *search_tasks(("keda",), ("all",), **SMALL)]
    assert stale(both, after, moved) == {both[1]: "tuned with 0 trials"}
    assert kept.merged([ramp], kept.probes) == kept


def test_an_earlier_finding_for_another_network_or_meter_does_not_stay(file, tmp_path):
    path = tmp_path / "tuned.json"
    best = load(file).find(("keda", "ramp", None)).model_copy(update={"j": 0.5, "trials": 0})
    save(load(file).merged([best], {}), path)
    refresh(chosen(), path, QUIET)
    assert load(path).find(best.key).j > 0.5


def test_a_file_is_read_as_it_was_written(file, tmp_path):
    copy = tmp_path / "copy.json"
    save(load(file), copy)
    assert load(copy) == load(file)
    assert load(tmp_path / "none.json") == Tuned()


def test_a_damaged_file_names_itself_and_the_remedy(tmp_path):
    path = tmp_path / "tuned.json"
    path.write_text('{"records": [{"contender": "hpa"}]}')
    with pytest.raises(EvaluationError, match=r"tuned\.json.*rlscaler tune"):
        load(path)


def test_an_unknown_contender_is_named():
    with pytest.raises(EvaluationError, match="choose from hpa, keda"):
        cache.record_of("cron")


def test_settings_from_another_space_are_refused(monkeypatch, file):
    old = [one.model_copy(update={"space": "0" * 12}) for one in load(file).records]
    monkeypatch.setattr(cache, "_loaded", lambda: Tuned(records=old))
    with pytest.raises(EvaluationError, match="has changed since"):
        cache.tuned("keda", "ramp")


def test_settings_from_before_a_change_are_refused(monkeypatch, file):
    old = [one.model_copy(update={"trials": 0}) for one in load(file).records]
    monkeypatch.setattr(cache, "_loaded", lambda: Tuned(records=old))
    with pytest.raises(EvaluationError, match="tuned for ramp before it changed; run `rlscaler tune`"):
        cache.tuned("keda", "ramp")


@pytest.mark.slow
def test_a_workload_without_settings_gets_those_for_all(monkeypatch, file):
    monkeypatch.setattr(cache, "_loaded", lambda: load(file))
    assert cache.record_of("keda", "ramp").workload == "ramp"
    assert cache.record_of("keda", "my_own_trace").workload is None
    scenarios = tune_part("ramp", None, 2)
    assert np.isfinite(run(scenarios, cache.tuned("keda", "ramp")(scenarios.rate)).result.j).all()


def test_the_lineup_leaves_out_who_was_not_tuned(monkeypatch, file):
    monkeypatch.setattr(cache, "_loaded", lambda: load(file))
    from rlscaler_core.models import load_bundled

    for workload in (None, "ramp", "azure_code"):
        names = [entry.name for entry in lineup(load_bundled("rule"), "rule", workload=workload)]
        assert names[0] == "policy"
        assert "keda_tuned" in names
        assert "hpa_tuned" not in names
        assert len(names) == len(set(names))


def test_every_workload_has_a_job_and_the_held_out_one_two():
    found = search_tasks()
    assert len(found) == len(CONTENDERS) * 11
    assert {task.fold for task in found if task.workload == "azure_code"} == {0, 1}
    assert {task.fold for task in found if task.workload != "azure_code"} == {None}


def test_the_command_line_names_what_it_does_not_know():
    found = CliRunner().invoke(tune_command, ["--contenders", "cron"])
    assert found.exit_code == 2
    assert "choose from hpa" in found.output


def test_check_fails_where_something_is_missing(file):
    options = ["--budget", "6", "--episodes", "2", "--file", str(file), "--check"]
    assert CliRunner().invoke(tune_command, ["--contenders", "keda", "--workloads", "ramp", *options]).exit_code == 0
    missing = CliRunner().invoke(tune_command, ["--contenders", "keda", "--workloads", "spike", *options])
    assert missing.exit_code == 1
    assert "not tuned yet" in missing.output


def test_as_json_standard_output_has_the_records_or_those_that_do_not_count(file):
    options = ["--contenders", "keda", "--budget", "6", "--episodes", "2", "--file", str(file), "-o", "json"]
    checked = CliRunner().invoke(tune_command, [*options, "--workloads", "ramp,spike", "--check"])
    assert checked.exit_code == 1
    reason = {"contender": "keda", "workload": "spike", "fold": None, "reason": "not tuned yet"}
    assert json.loads(checked.stdout) == {"current": 1, "outdated": [reason]}
    kept = CliRunner().invoke(tune_command, [*options, "--workloads", "ramp"])
    assert kept.exit_code == 0, kept.output
    assert Tuned.model_validate_json(kept.stdout) == load(file)


def test_the_shipped_settings_fit_the_search_spaces():
    for shipped in load().records:
        assert shipped.space == cache.space_digest(CONTENDERS[shipped.contender]), shipped.key
        assert Record.model_validate(shipped.model_dump()) == shipped
