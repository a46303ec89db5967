"""Stamps, locks and resumption of the builder, with a stand-in for the compiler that writes down its calls."""

from __future__ import annotations

import io
import shutil
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rlscaler_dev.cluster import binaries, builder, paths, stamps
from rlscaler_dev.cluster.progress import ConsoleReporter, Reporter
from rlscaler_dev.cluster.toolchain import Go, environment
from rlscaler_dev.cluster.versions import TOOLS
from rlscaler_dev.exceptions import BuildError

KWOK = TOOLS["kwok"]

COMPILER = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$1" in
  list) echo "true stale dependency: x"; echo "false " ;;
  build)
    echo some/package >&2
    [ -d "$GOTMPDIR" ] || exit 2
    [ ! -e "$FAIL_ONCE" ] || { rm "$FAIL_ONCE"; echo "unexpected EOF" >&2; exit 1; }
    [ -z "$FAIL" ] || { echo "kwok.go:1:2: undefined: nonsense" >&2; yes another/package | head -50 >&2; exit 1; }
    while [ "$1" != -o ]; do shift; done
    printf '#!/bin/sh\\necho kwok version v0.8.0\\n' > "$2" ;;
esac
"""


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    command = tmp_path / "go"
    command.write_text(COMPILER)
    command.chmod(0o755)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return Go(command, environment())


def builds(tmp_path: Path) -> int:
    return sum(line.startswith("build ") for line in (tmp_path / "calls").read_text().splitlines())


def test_a_built_binary_is_stamped_and_not_built_again(compiler: Go, tmp_path: Path) -> None:
    assert stamps.valid(KWOK) is None
    stamp = builder.build(KWOK, compiler, Reporter())
    assert stamp == stamps.valid(KWOK) == builder.build(KWOK, compiler, Reporter())
    assert builds(tmp_path) == 1
    assert binaries.installed_version(KWOK, stamps.binary(KWOK)) == (0, 8, 0)


def test_two_builds_at_once_compile_once(compiler: Go, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: builder.build(KWOK, compiler, Reporter()), range(4)))
    assert len(set(results)) == 1
    assert builds(tmp_path) == 1


def test_changed_flags_make_the_stamp_invalid(compiler: Go) -> None:
    builder.build(KWOK, compiler, Reporter())
    assert stamps.valid(replace(KWOK, tags=("netgo",))) is None
    assert stamps.valid(replace(KWOK, stamp=())) is None


def test_a_binary_cut_short_is_built_again(compiler: Go, tmp_path: Path) -> None:
    builder.build(KWOK, compiler, Reporter())
    stamps.binary(KWOK).write_bytes(b"#!/bin/sh")
    assert stamps.valid(KWOK) is None
    builder.build(KWOK, compiler, Reporter())
    assert builds(tmp_path) == 2


def test_a_build_that_broke_off_is_tried_once_more(
    compiler: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "RETRY_SECONDS", 0)
    once = tmp_path / "once"
    once.touch()
    stamp = builder.build(KWOK, Go(compiler.command, compiler.environment | {"FAIL_ONCE": str(once)}), Reporter())
    assert stamp == stamps.valid(KWOK)
    assert builds(tmp_path) == 2


def test_a_failed_build_shows_the_compilers_words_and_leaves_nothing(
    compiler: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "RETRY_SECONDS", 0)
    failing = Go(compiler.command, compiler.environment | {"FAIL": "1"})
    with pytest.raises(BuildError, match="undefined: nonsense"):
        builder.build(KWOK, failing, Reporter())
    assert list(paths.bin_dir().iterdir()) == []


def test_what_a_killed_build_left_is_swept_away(compiler: Go) -> None:
    killed = paths.bin_dir() / ".kwok+abc"
    killed.mkdir(parents=True)
    (killed / "kwok").write_bytes(b"half")
    builder.build(KWOK, compiler, Reporter())
    assert sorted(entry.name for entry in paths.bin_dir().iterdir()) == ["kwok", "kwok.stamp.json"]


def test_the_disk_is_checked_before_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1, 1, 100 << 20))
    with pytest.raises(BuildError, match="RLSCALER_CACHE"):
        builder.announce([TOOLS["kube-apiserver"]], Reporter())


def test_a_long_step_writes_a_line_every_half_minute_where_there_is_no_terminal() -> None:
    now, written = 0.0, io.StringIO()
    reporter = ConsoleReporter(Console(file=written), clock=lambda: now)
    reporter.plan([("kwok", 15)])
    for now in range(0, 100, 10):
        reporter.step("kwok", now, 95)
    reporter.finish("kwok", "built")
    assert written.getvalue().splitlines() == ["kwok: 30/95", "kwok: 60/95", "kwok: 90/95", "kwok: built"]
