"""The audit log's files: whole lines, bounds, and a disk that takes nothing more."""

import gzip
import json
import logging
import os
import threading
from pathlib import Path

import pytest

from rlscaler_operator.records import audit
from rlscaler_operator.records.audit import AuditLog, LogFile, files_of
from rlscaler_operator.settings import Settings


def numbers(path: Path) -> list[int]:
    """What the files hold, oldest first."""
    found = []
    for file in files_of(path):
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        found += [json.loads(line)["n"] for line in data.splitlines()]
    return found


def settings(path: Path, **options) -> Settings:
    return Settings(audit_log=path, **options)


def test_everything_is_written_when_the_log_is_closed(tmp_path):
    path = tmp_path / "not" / "there" / "audit.jsonl"
    log = AuditLog(settings(path))
    for n in range(1000):
        log.write(lambda n=n: {"n": n})
    log.close()
    assert numbers(path) == list(range(1000))


def test_without_a_file_nothing_is_made():
    log = AuditLog(Settings(audit_log=None))
    log.write(lambda: pytest.fail("a record was made"))
    log.close()
    assert not log.enabled


def test_rotated_files_are_compressed_and_bounded(tmp_path):
    path = tmp_path / "audit.jsonl"
    file = LogFile(path, max_bytes=50, rotated=3)
    for n in range(40):
        file.append(json.dumps({"n": n}).encode() + b"\n")
    file.close()
    assert [found.name for found in files_of(path)] == [
        *(f"audit.jsonl.{number}.gz" for number in (3, 2, 1)),
        "audit.jsonl",
    ]
    kept = numbers(path)
    assert kept == list(range(40))[-len(kept) :]
    assert path.stat().st_size <= 50
    assert sorted(os.listdir(tmp_path)) == sorted(found.name for found in files_of(path))


def test_no_old_file_is_kept_where_none_is_wanted(tmp_path):
    path = tmp_path / "audit.jsonl"
    file = LogFile(path, max_bytes=20, rotated=0)
    for n in range(9):
        file.append(json.dumps({"n": n}).encode() + b"\n")
    file.close()
    assert os.listdir(tmp_path) == ["audit.jsonl"]
    assert numbers(path)[-1] == 8


def test_a_line_that_kill_9_cut_short_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":')
    file = LogFile(path, 0, 1)
    file.append(b'{"n":3}\n')
    file.close()
    assert path.read_bytes().splitlines() == [b'{"n":1}', b'{"n":', b'{"n":3}']


def test_a_file_that_was_not_compressed_in_time_counts_and_moves_up(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"n":2}\n')
    (tmp_path / "audit.jsonl.1").write_bytes(b'{"n":1}\n')
    (tmp_path / "audit.jsonl.1.gz.partial").write_bytes(b"\x1f\x8b")
    assert numbers(path) == [1, 2]
    file = LogFile(path, 10, 2)
    for n in (3, 4):
        file.append(json.dumps({"n": n}).encode() + b"\n")
    file.close()
    assert numbers(path) == [2, 3, 4]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_loses_records_says_so_once_and_never_raises(caplog):
    lost = []
    log = AuditLog(settings(Path("/dev/full")), lambda: lost.append(1))
    with caplog.at_level(logging.ERROR):
        for _ in range(50):
            log.write(lambda: {"n": 1})
        log.close()
    assert len(lost) == 50
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


def test_a_disk_that_hangs_holds_up_nobody(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(audit, "QUEUE", 3)
    monkeypatch.setattr(audit, "CLOSE_SECONDS", 0.05)
    hang, lost = threading.Event(), []
    log = AuditLog(settings(tmp_path / "audit.jsonl"), lambda: lost.append(1))
    log.write(lambda: {"n": hang.wait(10)})
    for n in range(10):
        log.write(lambda n=n: {"n": n})
    log.close()
    assert len(lost) >= 6
    assert "wait for the disk" in caplog.text
    hang.set()
    log._thread.join(5)


def test_a_record_that_cannot_be_made_is_counted(tmp_path, caplog):
    lost = []
    log = AuditLog(settings(tmp_path / "audit.jsonl"), lambda: lost.append(1))
    log.write(lambda: {"n": float("nan")})
    log.write(lambda: {"n": 2})
    log.close()
    assert lost == [1]
    assert numbers(tmp_path / "audit.jsonl") == [2]
