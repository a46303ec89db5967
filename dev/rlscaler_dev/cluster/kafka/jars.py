"""Kafka's jars: fetched once by the user's own Maven, with the user's settings, into our cache."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from rlscaler_dev.cluster import paths
from rlscaler_dev.cluster.progress import Reporter
from rlscaler_dev.exceptions import ToolchainError

JAVA_MINIMUM = 17
"""The oldest Java that Kafka 4's broker runs on."""

FETCH_SECONDS = 600.0
"""Longest time for one run of Maven: 44 MB, which took 22 to 40 s here."""

SHOWN_LINES = 8
"""Lines of Maven's complaint in a message: the first ones have the cause."""

MAIN_JAR = "kafka_2.13-*.jar"
AGENT_JAR = "jmx_prometheus_javaagent-*.jar"

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True)
class Jars:
    """A folder with all jars of one version."""

    folder: Path

    @property
    def agent(self) -> Path:
        """The agent that answers Prometheus."""
        return next(self.folder.glob(AGENT_JAR))

    @property
    def complete(self) -> bool:
        """Whether the folder has the broker and the agent; it is moved into place as a whole."""
        return any(self.folder.glob(MAIN_JAR)) and any(self.folder.glob(AGENT_JAR))


def java() -> str:
    """The path of a Java that is new enough: of $JAVA_HOME, else on PATH. Raises ToolchainError with the remedy."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    candidates += [command] if (command := shutil.which("java")) else []
    seen = []
    for candidate in candidates:
        version = _java_version(candidate)
        if version is not None and version >= JAVA_MINIMUM:
            return candidate
        seen.append(f"{candidate} is {'Java ' + str(version) if version else 'no Java that runs'}")
    raise ToolchainError(
        f"--kafka needs Java {JAVA_MINIMUM} or newer ({'; '.join(seen) or 'no java on PATH'}): install it, for example "
        "`apt-get install openjdk-17-jre-headless`, or set JAVA_HOME to one"
    )


def _java_version(command: str) -> int | None:
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    version = _VERSION.search(done.stderr + done.stdout)
    return int(version[1]) if version else None


def cached() -> Jars | None:
    """The jars as they were fetched before; None where they were not, or where the pinned versions have changed."""
    jars = Jars(_folder())
    return jars if jars.complete else None


def provide(reporter: Reporter) -> Jars:
    """The jars, from our cache or fetched now. Raises ToolchainError with a remedy."""
    with paths.hold("kafka-jars", reporter.say, "another process that fetches Kafka"):
        if (there := cached()) is not None:
            return there
        maven = shutil.which("mvn")
        if maven is None:
            raise ToolchainError(
                "--kafka fetches Kafka's jars with Maven, and there is no mvn on PATH: install it, for example "
                "`apt-get install maven`; the jars are kept in our cache, so that it is needed once"
            )
        reporter.say("fetching Kafka with Maven: 44 MB, once")
        return _fetch(maven)


def _fetch(maven: str) -> Jars:
    """Fetch into a folder beside the final one, and move it there when it is whole."""
    folder = _folder()
    making = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    try:
        pom = making / "pom.xml"
        pom.write_bytes(_pom())
        target = making / "jars"
        # Checksums that do not match end the build (-C).
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={target}", "-DincludeScope=runtime"]
        argv = [maven, "--batch-mode", "--quiet", "-C", "-f", str(pom), *goal]
        done = subprocess.run(
            argv,
            cwd=making,
            capture_output=True,
            text=True,
            check=False,
            timeout=FETCH_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode or not Jars(target).complete:
            complaint = "\n".join((done.stdout + done.stderr).strip().splitlines()[:SHOWN_LINES])
            raise ToolchainError(
                "Maven could not fetch Kafka; check the network and the mirror in your settings (~/.m2/settings.xml), "
                f"then run the command again. It said:\n{complaint}"
            )
        shutil.rmtree(folder, ignore_errors=True)
        target.replace(folder)
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(f"Maven did not fetch Kafka within {FETCH_SECONDS:.0f} s: check the network") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return Jars(folder)


def _pom() -> bytes:
    return resources.files("rlscaler_dev.cluster").joinpath("tools", "kafka", "pom.xml").read_bytes()


def _folder() -> Path:
    """Changes with the pinned versions."""
    return paths.kafka_dir() / hashlib.sha256(_pom()).hexdigest()[:16]
