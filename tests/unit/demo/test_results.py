"""The result folder, signals, and what is written when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlscaler_dev.demo.results import ResultFolder
from rlscaler_dev.exceptions import DemoError, RecordError

from .test_records import write_records


@pytest.mark.slow
def test_results_are_written_again_from_the_raw_records(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path / "out")
    folder.prepare()
    write_records(folder.data)
    first = folder.write()
    for file in (folder.summary, folder.timeline, folder.picture):
        assert file.stat().st_size > 0
        file.unlink()
    assert folder.write() == first == json.loads(folder.summary.read_text())


@pytest.mark.slow
def test_two_copies_have_one_summary_one_picture_and_a_sentence(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path)
    folder.prepare()
    for name, contender in (("hpa", "hpa"), ("rlscaler", "rl")):
        (folder.data / name).mkdir()
        write_records(folder.data / name)
        run = json.loads((folder.data / name / "run.json").read_text())
        (folder.data / name / "run.json").write_text(json.dumps(run | {"contender": contender}))
    text = folder.write_copies()
    summary = json.loads(folder.summary.read_text())
    assert summary["sentence"] == text
    assert summary["copies"]["hpa"]["contender"] == "hpa"
    assert summary["copies"]["rlscaler"]["contender"] == "rl"
    assert folder.picture.stat().st_size > 0
    assert {path.name for path in tmp_path.glob("*.csv")} == {"timeline-hpa.csv", "timeline-rlscaler.csv"}


def test_without_records_nothing_is_made_up(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path)
    folder.prepare()
    with pytest.raises(RecordError, match=r"offered\.csv"):
        folder.write()
    assert not folder.summary.exists()


def test_a_new_run_replaces_an_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    folder = ResultFolder(tmp_path)
    folder.prepare()
    folder.summary.write_text("{}")
    (folder.logs / "old.log").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    folder.prepare()
    assert not folder.summary.exists()
    assert not (folder.logs / "old.log").exists()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(DemoError, match="--out"):
        ResultFolder(tmp_path).prepare()
    assert (tmp_path / "thesis.tex").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DemoError, match=r"file/out cannot be written.*--out"):
        ResultFolder(tmp_path / "file" / "out").prepare()
