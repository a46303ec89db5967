"""What is said where Java or Maven is missing or too old, and that a fetch is taken as a whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from rlscaler_dev.cluster.kafka import jars
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.exceptions import ToolchainError


def script(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH beside the system's shell, without the jars of this machine."""
    monkeypatch.setenv("RLSCALER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path / "bin"


def test_without_java_the_remedy_is_said(empty: Path) -> None:
    with pytest.raises(ToolchainError, match=r"Java 17 or newer \(no java on PATH\).*install it"):
        jars.java()


@pytest.mark.parametrize(
    ("said", "what"), [('java version "1.8.0_402"', "Java 8"), ('openjdk version "11.0.2"', "Java 11")]
)
def test_an_old_java_is_named(empty: Path, said: str, what: str) -> None:
    script(empty, "java", f"echo '{said}' >&2")
    with pytest.raises(ToolchainError, match=f"java is {what}"):
        jars.java()


def test_java_home_comes_first_and_a_newer_one_on_path_second(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = script(empty, "java", """echo 'openjdk version "21.0.4" 2024-07-16' >&2""")
    home = script(tmp_path / "home" / "bin", "java", """echo 'openjdk version "17.0.15"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert jars.java() == str(home)
    script(tmp_path / "home" / "bin", "java", """echo 'java version "1.8.0"' >&2""")
    assert jars.java() == str(new)


def test_without_maven_the_remedy_is_said(empty: Path) -> None:
    with pytest.raises(ToolchainError, match="no mvn on PATH: install it"):
        jars.provide(Reporter())


def test_a_maven_that_fails_is_quoted_and_leaves_nothing(empty: Path, tmp_path: Path) -> None:
    script(empty, "mvn", "echo '[ERROR] Could not transfer artifact'; exit 1")
    with pytest.raises(ToolchainError, match=r"(?s)settings.*Could not transfer artifact"):
        jars.provide(Reporter())
    assert jars.cached() is None
    assert list((tmp_path / "cache" / "kafka").iterdir()) == []


def test_what_was_fetched_is_not_fetched_again(empty: Path) -> None:
    folder = jars._folder()
    folder.mkdir(parents=True)
    for name in ("kafka_2.13-4.4.0.jar", "jmx_prometheus_javaagent-1.0.1.jar"):
        (folder / name).touch()
    assert jars.provide(Reporter()).agent.name == "jmx_prometheus_javaagent-1.0.1.jar"
